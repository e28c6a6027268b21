"""The ways in from outside: listeners on 127.0.0.1 that pass connections on to unix sockets in the sandbox's folder."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from .paths import OUTSIDE, STEP, World, Wrong, everyone


def choose(world: World) -> dict[str, int]:
    """This sandbox's own ports: kept from its last run, else the first step that no other sandbox has."""
    kept = world.read("ports.json")
    if isinstance(kept, dict) and kept.keys() == OUTSIDE.keys():
        return kept
    taken = {ports["api"] for other in everyone() if other.name != world.name and isinstance(ports := other.read("ports.json"), dict)}
    index = 0 if world.name == "default" else 1
    while OUTSIDE["api"] + STEP * index in taken:
        index += 1
    ports = {name: port + STEP * index for name, port in OUTSIDE.items()}
    world.write("ports.json", ports)
    return ports


def listeners() -> dict[int, str]:
    """Port -> socket inode of everything that listens on IPv4 here."""
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            cells = row.split()
            if cells[3] == "0A":
                found[int(cells[1].rsplit(":", 1)[1], 16)] = cells[9]
    return found


def owner(inode: str) -> str:
    """Which process holds a socket, in words."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(fd) == f"socket:[{inode}]" for fd in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                return f"process {process.name} ({command[:80]})"
        except OSError:
            continue
    return "a process of another user"


def check(world: World, ports: dict[str, int]) -> None:
    """Ports in use are said with their owner, before anything is started."""
    busy = listeners()
    taken = [f"127.0.0.1:{port} ({name}) is in use by {owner(busy[port])}" for name, port in ports.items() if port in busy]
    if taken:
        raise Wrong(
            "\n".join(taken)
            + f"\nEnd it, or choose other ports for this sandbox by editing {world.folder / 'ports.json'}."
        )


async def serve(folder: Path, ports: dict[str, int]) -> None:
    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
            writer.write_eof()
        except OSError:
            writer.close()

    def passing(path: Path):
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                inner_reader, inner_writer = await asyncio.open_unix_connection(str(path))
            except OSError:
                writer.close()
                return
            await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))
            for one in (writer, inner_writer):
                one.close()

        return accept

    servers = [await asyncio.start_server(passing(folder / f"{name}.sock"), "127.0.0.1", port) for name, port in ports.items()]
    print("forwards ready", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


def main(folder: str, world_pid: str) -> None:
    """`python -m world.outside FOLDER PID`: ends with the process that holds the sandbox."""
    ports = World(Path(folder).name).read("ports.json")

    async def watch() -> None:
        pidfd = os.pidfd_open(int(world_pid))
        gone = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(pidfd, lambda: gone.done() or gone.set_result(None))
        serving = asyncio.ensure_future(serve(Path(folder), ports))
        await asyncio.wait([gone, serving], return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()

    asyncio.run(watch())


if __name__ == "__main__":
    main(*sys.argv[1:])
