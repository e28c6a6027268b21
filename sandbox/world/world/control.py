"""The keeper's doors: a unix socket for hooks and the command line, a port on loopback for sign-in and mounts."""

from __future__ import annotations

import json
import os
import socketserver
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from .keeper import Keeper
from .parts import CONTROL
from .paths import INSIDE, Wrong


class Handler(BaseHTTPRequestHandler):
    keeper: Keeper
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _answer(self, body: bytes | None) -> None:
        try:
            status, answer = 200, self._do(json.loads(body) if body else {})
        except Wrong as problem:
            status, answer = 500, {"error": str(problem)}
        except Exception as problem:  # noqa: BLE001 - whoever asked has to hear of it, whatever it is
            status, answer = 500, {"error": f"{type(problem).__name__}: {problem}"}
        data = json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            pass  # whoever asked has gone

    def _do(self, body: dict[str, Any]) -> Any:
        url = urlsplit(self.path)
        match url.path:
            case "/status":
                return self.keeper.status()
            case "/reset":
                return self.keeper.reset()
            case "/hook":
                return self.keeper.hook(body)
            case "/signin":
                return self.keeper.cluster.sign_in(body)
            case "/mount":
                return self.keeper.mount(dict(parse_qsl(url.query)))
        raise Wrong(f"no {url.path} here")

    def address_string(self) -> str:
        return "local"

    def log_message(self, format: str, *args: object) -> None:
        """The parts that ask keep their own logs."""


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


def serve(keeper: Keeper) -> None:
    Handler.keeper = keeper
    path = str(INSIDE / "world.sock")
    if os.path.exists(path):
        os.unlink(path)
    for server in (UnixServer(path, Handler), ThreadingHTTPServer(("127.0.0.1", CONTROL), Handler)):
        threading.Thread(target=server.serve_forever, daemon=True).start()
