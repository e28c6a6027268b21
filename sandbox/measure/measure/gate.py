"""A proxy before the API server that can hold an answer: a write has been done, and whoever asked for it does not hear of it.

It ends TLS with the API server's own certificate and speaks HTTP/1.1 on both sides (clients fall back to it). Upgraded connections
(exec, port-forward) are passed through as bytes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

READS = ("GET", "HEAD", "OPTIONS")


@dataclass
class Write:
    """One write that the API server has answered."""

    number: int
    method: str
    path: str
    status: int
    made: str = ""  # kind, namespace and name of what is new because of it
    gone: str = ""  # and of what it took away
    free: asyncio.Event = field(default_factory=asyncio.Event, repr=False)


class Gate:
    """Runs in a thread of its own; `hold` says whether writes are held from now on."""

    def __init__(self, listen: tuple[str, int], to: tuple[str, int], certificate: Path, key: Path, authority: Path) -> None:
        self.listen, self.to, self.hold = listen, to, False
        self.log: list[Write] = []
        self.waiting: dict[int, Write] = {}
        self._count, self._ready = itertools.count(1), threading.Event()
        self._tasks: set[asyncio.Task[None] | None] = set()  # the loop itself holds tasks only weakly
        self._inward = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._inward.load_cert_chain(certificate, key)
        self._outward = ssl.create_default_context(cafile=str(authority))
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, daemon=True, name="gate").start()
        if not self._ready.wait(10):
            raise OSError(f"the gate at {listen[0]}:{listen[1]} does not listen")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, *self.listen, ssl=self._inward))
        self._ready.set()
        self._loop.run_forever()

    def release(self, number: int | None = None) -> None:
        """Let one held answer, or all, go."""
        for write in list(self.waiting.values()):
            if number in (None, write.number):
                self._loop.call_soon_threadsafe(write.free.set)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = back = None
        self._tasks.add(asyncio.current_task())
        try:
            there, back = await asyncio.open_connection(*self.to, ssl=self._outward)
            while await self._exchange(reader, writer, there, back):
                pass
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass  # one of the two is gone
        finally:
            self._tasks.discard(asyncio.current_task())
            for end in (writer, back):
                if end is not None:
                    end.transport.abort()

    async def _exchange(self, reader: Any, writer: Any, there: Any, back: Any) -> bool:
        """One request and its answer; false when the connection is used up."""
        head, body = await _message(reader)
        if not head:
            return False
        method, path = head.split(b" ", 2)[:2]
        back.write(head + body)
        await back.drain()
        answer = await there.readuntil(b"\r\n\r\n")
        status, fields = int(answer.split(b" ", 2)[1]), _fields(answer)
        if status == 101:
            writer.write(answer)
            await asyncio.gather(_pipe(reader, back), _pipe(there, writer))
            return False
        if method.decode() in READS:  # may be a watch without end: passed on as it comes
            writer.write(answer)
            if method != b"HEAD" and status not in (204, 304):
                await _stream(there, writer, fields)
            return fields.get("connection") != "close"
        content = await _body(there, fields)
        gone = _gone(path.decode()) if method == b"DELETE" and status < 300 else ""
        await self._written(Write(next(self._count), method.decode(), path.decode(), status, _made(status, content), gone))
        writer.write(answer + content)
        await writer.drain()
        return fields.get("connection") != "close"

    async def _written(self, write: Write) -> None:
        if write.path.split("?")[0].endswith("reviews"):
            return
        self.log.append(write)
        if self.hold:
            self.waiting[write.number] = write
            try:
                await write.free.wait()
            finally:
                self.waiting.pop(write.number, None)


def _fields(head: bytes) -> dict[str, str]:
    rows = (line.partition(b":") for line in head.split(b"\r\n")[1:] if b":" in line)
    return {name.decode().lower(): value.strip().decode() for name, _, value in rows}


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b"", b""
    return head, await _body(reader, _fields(head))


async def _body(reader: asyncio.StreamReader, fields: dict[str, str]) -> bytes:
    """A body as it is on the wire."""
    if "chunked" in fields.get("transfer-encoding", ""):
        parts = []
        while True:
            line = await reader.readline()
            piece = await reader.readexactly(int(line.split(b";")[0], 16) + 2)
            parts += [line, piece]
            if piece == b"\r\n":
                return b"".join(parts)
    return await reader.readexactly(int(fields.get("content-length") or 0))


async def _stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fields: dict[str, str]) -> None:
    if "chunked" not in fields.get("transfer-encoding", ""):
        writer.write(await _body(reader, fields))
        await writer.drain()
        return
    while True:
        line = await reader.readline()
        piece = await reader.readexactly(int(line.split(b";")[0], 16) + 2)
        writer.write(line + piece)
        await writer.drain()
        if piece == b"\r\n":
            return


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65536):
        writer.write(piece)
        await writer.drain()
    writer.transport.abort()


def _made(status: int, content: bytes) -> str:
    """What a 201 says is new. Events and evictions are nobody's resources."""
    if status != 201:
        return ""
    start = content.find(b"{")
    try:
        made = json.JSONDecoder().raw_decode(content[start:].decode("utf-8", "replace"))[0] if start >= 0 else {}
    except ValueError:
        made = _chunks(content)
    meta = made.get("metadata", {})
    if not meta.get("name") or made.get("kind") in ("Event", "Eviction", "TokenRequest", "Status"):
        return ""
    name = meta["generateName"] + "*" if meta.get("generateName") else meta["name"]
    return f"{made['kind']} {meta.get('namespace', '')}/{name}"


def _gone(path: str) -> str:
    """`…/namespaces/nemo/configmaps/x` as what `_made` calls it; the plural is good enough for the kinds that are made here."""
    parts = path.split("?")[0].split("/")
    namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts[:-2] else ""
    return f"{parts[-2].rstrip('s')} {namespace}/{parts[-1]}"


def _chunks(content: bytes) -> dict[str, Any]:
    """JSON out of a chunked body."""
    text, at = b"", 0
    while at < len(content):
        end = content.index(b"\r\n", at)
        size = int(content[at:end].split(b";")[0], 16)
        text, at = text + content[end + 2 : end + 2 + size], end + 4 + size
    try:
        return dict(json.loads(text))
    except ValueError:
        return {}
