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


def front(environ: dict[str, Any], start_response: Callable[..., Any], application: Any) -> Iterable[bytes]:
    """The registry as clients see it; in journal and fault rules the service is "registry", the operation e.g. "PUT manifests"."""
    path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
    parts = path[4:].strip("/").split("/")
    cut = max((parts.index(word) for word in ("manifests", "blobs", "tags") if word in parts), default=None)
    name, body = "/".join(parts[:cut]) if cut else "", None
    call = wire.Call(
        "registry", f"{method} {parts[cut] if cut else 'ping'}", "", "", "", "", path, method not in ("GET", "HEAD"), secrets.token_hex(16), path
    )
    rules = application.faults.pick(call)
    shown: list[int] = []

    def begin(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        """The registry has done it: note that, hold the answer if a rule says so, then begin it."""
        shown.append(int(status.split(" ", 1)[0]))
        application.journal.add(
            service=call.service,
            operation=call.operation,
            **{"class": "write" if call.write else "read"},
            principal=principal_of(environ.get("HTTP_AUTHORIZATION", "")),
            via="",
            target=path,
            digest="",
            status=shown[0],
            code="OK" if shown[0] < 400 else f"HTTP {shown[0]}",
            request=call.request_id,
            fault=",".join(rule.effect for rule in rules),
        )
        for rule in after:
            if rule.effect == "lose-reply":
                raise ConnectionResetError("cut by a fault rule")
            application.faults.hold(rule, call)
        return start_response(status, headers)

    def say(status: int, code: str, message: str, extra: list[tuple[str, str]] | None = None) -> list[bytes]:
        data = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
        head = [("Content-Type", "application/json"), ("Content-Length", str(len(data))), ("Docker-Distribution-Api-Version", "registry/2.0")]
        begin(f"{status} Error", head + (extra or []))
        return [data]

    after: list[Any] = []
    for rule in rules:
        if rule.effect == "delay":
            time.sleep(float(rule.spec.get("seconds", 1)))
        elif rule.effect in ("hold-before", "black-hole"):
            application.faults.hold(rule, call)
        elif rule.effect in ("hold", "lose-reply"):
            after.append(rule)
        elif rule.effect == "reset":
            raise ConnectionResetError("cut by a fault rule")
        elif rule.effect in wire.KINDS:
            status = REFUSED.get(rule.effect, 400)
            return say(status, {429: "TOOMANYREQUESTS", 403: "DENIED", 401: "UNAUTHORIZED", 404: "NOT_FOUND"}.get(status, "UNKNOWN"), rule.effect)
    if not good(environ.get("HTTP_AUTHORIZATION", "")):
        return say(
            401,
            "UNAUTHORIZED",
            "Your authorization token has expired or is missing. Reauthenticate and try again.",
            [("WWW-Authenticate", f'Basic realm="https://{environ.get("HTTP_HOST", "")}/",service="ecr.amazonaws.com"')],
        )
    repository = find(name) if name else None
    if name and repository is None:
        return say(404, "NAME_UNKNOWN", f"The repository with name '{name}' does not exist in the registry with id '{SETTINGS.account}'")
    if method == "PUT" and cut and parts[cut] == "manifests":
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        digest = "sha256:" + hashlib.sha256(body).hexdigest()
        if moves_immutable(repository, parts[-1], digest):
            return say(
                400,
                "TAG_INVALID",
                f"The image tag '{parts[-1]}' already exists in the '{name}' repository and cannot be overwritten because the tag is immutable.",
            )
        repository.__dict__.setdefault("pushed", set()).add(digest)
    if method == "POST" and "mount=" in environ.get("QUERY_STRING", ""):
        environ["QUERY_STRING"] = ""  # ECR does not mount blobs across repositories unless the account asks for it: 202, upload it
    return _forward(environ, begin, method, body)


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
