"""`/v2/` in front of the real registry: token, repository, immutable tags; the rest is passed on."""

from __future__ import annotations

import hashlib
import http.client
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from .. import wire
from ..config import SETTINGS
from .behind import find, moves_immutable
from .tokens import good, principal_of

REFUSED = {"throttle": 429, "access-denied": 403, "expired": 401, "not-found": 404, "server-error": 500, "unavailable": 503}


CODES = {429: "TOOMANYREQUESTS", 403: "DENIED", 401: "UNAUTHORIZED", 404: "NOT_FOUND"}


def front(environ: dict[str, Any], start_response: Callable[..., Any], application: Any) -> Iterable[bytes]:
    """The registry as clients see it; in journal and fault rules the service is "registry", the operation e.g. "PUT manifests"."""
    exchange = Exchange(environ, start_response, application)
    return exchange.faults() or exchange.refusal() or exchange.passed_on()


class Exchange:
    """One request to the registry and its answer."""

    def __init__(self, environ: dict[str, Any], start_response: Callable[..., Any], application: Any) -> None:
        self.environ, self.start_response, self.application = environ, start_response, application
        self.path, self.method, self.body = environ["PATH_INFO"], environ["REQUEST_METHOD"], None
        parts = self.path[4:].strip("/").split("/")
        cut = max((parts.index(word) for word in ("manifests", "blobs", "tags") if word in parts), default=0)
        self.name, self.kind, self.last = "/".join(parts[:cut]), parts[cut] if cut else "ping", parts[-1]
        write = self.method not in ("GET", "HEAD")
        self.call = wire.Call("registry", f"{self.method} {self.kind}", "", "", "", "", self.path, write, secrets.token_hex(16), self.path)
        self.rules = application.faults.pick(self.call)

    def begin(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        """The registry has done it: note that, hold the answer if a rule says so, then begin it."""
        number = int(status.split(" ", 1)[0])
        self.application.journal.add(
            service=self.call.service,
            operation=self.call.operation,
            **{"class": "write" if self.call.write else "read"},
            principal=principal_of(self.environ.get("HTTP_AUTHORIZATION", "")),
            via="",
            target=self.path,
            digest="",
            status=number,
            code="OK" if number < 400 else f"HTTP {number}",
            request=self.call.request_id,
            fault=",".join(rule.effect for rule in self.rules),
        )
        for rule in self.rules:
            if rule.effect == "lose-reply":
                raise ConnectionResetError("cut by a fault rule")
            if rule.effect == "hold":
                self.application.faults.hold(rule, self.call)
        return self.start_response(status, headers)

    def say(self, status: int, code: str, message: str, extra: list[tuple[str, str]] | None = None) -> list[bytes]:
        data = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
        head = [("Content-Type", "application/json"), ("Content-Length", str(len(data))), ("Docker-Distribution-Api-Version", "registry/2.0")]
        self.begin(f"{status} Error", head + (extra or []))
        return [data]

    def faults(self) -> list[bytes] | None:
        """What rules do before anything is done."""
        for rule in self.rules:
            if rule.effect == "delay":
                time.sleep(float(rule.spec.get("seconds", 1)))
            elif rule.effect in ("hold-before", "black-hole"):
                self.application.faults.hold(rule, self.call)
            elif rule.effect == "reset":
                raise ConnectionResetError("cut by a fault rule")
            elif rule.effect in wire.KINDS:
                status = REFUSED.get(rule.effect, 400)
                return self.unsigned() if status == 401 else self.say(status, CODES.get(status, "UNKNOWN"), rule.effect)
        return None

    def refusal(self) -> list[bytes] | None:
        """Token, repository, immutable tag."""
        if not good(self.environ.get("HTTP_AUTHORIZATION", "")):
            return self.unsigned()
        repository = find(self.name) if self.name else None
        if self.name and repository is None:
            text = f"The repository with name '{self.name}' does not exist in the registry with id '{SETTINGS.account}'"
            return self.say(404, "NAME_UNKNOWN", text)
        if self.method == "PUT" and self.kind == "manifests":
            self.body = self.environ["wsgi.input"].read(int(self.environ.get("CONTENT_LENGTH") or 0))
            digest = "sha256:" + hashlib.sha256(self.body).hexdigest()
            if moves_immutable(repository, self.last, digest):
                text = f"The image tag '{self.last}' already exists in the '{self.name}' repository and cannot be overwritten "
                return self.say(400, "TAG_INVALID", text + "because the tag is immutable.")
            repository.__dict__.setdefault("pushed", set()).add(digest)
        return None

    def unsigned(self) -> list[bytes]:
        """Every 401 says how to sign in."""
        realm = f'Basic realm="https://{self.environ.get("HTTP_HOST", "")}/",service="ecr.amazonaws.com"'
        text = "Your authorization token has expired or is missing. Reauthenticate and try again."
        return self.say(401, "UNAUTHORIZED", text, [("WWW-Authenticate", realm)])

    def passed_on(self) -> Iterable[bytes]:
        if self.method == "POST" and "mount=" in self.environ.get("QUERY_STRING", ""):
            self.environ["QUERY_STRING"] = ""  # ECR does not mount blobs across repositories unless the account asks for it: 202, upload it
        return _forward(self.environ, self.begin, self.method, self.body)


def _forward(environ: dict[str, Any], start_response: Callable[..., Any], method: str, body: bytes | None) -> Iterator[bytes]:
    """Pass a request on, streaming both ways; the registry makes its links from our Host header."""
    target = urlsplit(SETTINGS.registry_backend)
    connection = http.client.HTTPConnection(target.hostname or "127.0.0.1", target.port or 80, timeout=300)
    query = environ.get("QUERY_STRING", "")
    connection.putrequest(method, environ["PATH_INFO"] + ("?" + query if query else ""), skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", environ.get("HTTP_HOST", target.netloc))
    for key, value in environ.items():
        if key.startswith("HTTP_") and key not in ("HTTP_HOST", "HTTP_AUTHORIZATION", "HTTP_CONNECTION", "HTTP_TRANSFER_ENCODING", "HTTP_EXPECT"):
            connection.putheader(key[5:].replace("_", "-").title(), value)
    if environ.get("CONTENT_TYPE"):
        connection.putheader("Content-Type", environ["CONTENT_TYPE"])
    length = environ.get("CONTENT_LENGTH")
    chunked = not length and environ.get("wsgi.input_terminated") and method in ("PUT", "PATCH", "POST")
    if body is not None or length:
        connection.putheader("Content-Length", str(len(body)) if body is not None else str(length))
    elif chunked:
        connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    if body is not None:
        connection.send(body)
    elif length:
        left = int(length)
        while left > 0 and (piece := environ["wsgi.input"].read(min(left, 1 << 20))):
            connection.send(piece)
            left -= len(piece)
    elif chunked:
        while piece := environ["wsgi.input"].read(1 << 20):
            connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        connection.send(b"0\r\n\r\n")
    answer = connection.getresponse()
    headers = [(key, value) for key, value in answer.getheaders() if key.lower() not in ("transfer-encoding", "connection", "date")]
    start_response(
        f"{answer.status} {answer.reason or 'OK'}", [(key, _here(value) if key.lower() == "location" else value) for key, value in headers]
    )

    def stream() -> Iterator[bytes]:
        try:
            while piece := answer.read(1 << 20):
                yield piece
        finally:
            connection.close()

    return stream()


def _here(place: str) -> str:
    """A Location without scheme and host, which TLS in front of us would make wrong."""
    url = urlsplit(place)
    return url.path + (f"?{url.query}" if url.query else "")
