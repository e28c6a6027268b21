"""A TCP proxy that adds a delay to what a client sends: a server that is farther away than it is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class Delay:
    """Runs in a thread of its own. `seconds` can be changed at any time; it is added once to each round trip and to the connect."""

    def __init__(self, listen: tuple[str, int], to: tuple[str, int], seconds: float = 0.0) -> None:
        self.listen, self.to, self.seconds = listen, to, seconds
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._tasks: set[asyncio.Task[None] | None] = set()  # the loop itself holds tasks only weakly
        self.failure: OSError | None = None
        threading.Thread(target=self._run, daemon=True, name=f"proxy {listen}").start()
        if not self._ready.wait(10) or self.failure:
            raise OSError(f"the proxy at {listen[0]}:{listen[1]} does not listen: {self.failure or 'not after 10 s'}")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, *self.listen))
        except OSError as problem:
            self.failure = problem
        self._ready.set()
        if not self.failure:
            self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        try:
            await self._relay(reader, writer)
        finally:
            self._tasks.discard(asyncio.current_task())

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.seconds:
            await asyncio.sleep(self.seconds)
        try:
            there, back = await asyncio.open_connection(*self.to)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(self._pass(reader, back, lambda: self.seconds), self._pass(there, writer, lambda: 0.0), return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: Callable[[], float]) -> None:
        """Each piece leaves as long after its arrival as the delay says, in order, however many are on the way."""
        loop, waiting = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

        async def send() -> None:
            while True:
                due, piece = await waiting.get()
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                if not piece:
                    if writer.can_write_eof():
                        writer.write_eof()
                    return
                writer.write(piece)
                await writer.drain()

        sender = asyncio.create_task(send())
        try:
            while True:
                piece = await reader.read(65536)
                waiting.put_nowait((loop.time() + delay(), piece))
                if not piece:
                    break
        finally:
            await asyncio.gather(sender, return_exceptions=True)
            if not reader.at_eof():
                writer.transport.abort()
