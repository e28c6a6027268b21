"""A small client of the API server, as the cluster's admin."""

from __future__ import annotations

import http.client
import json
import ssl
from functools import lru_cache
from typing import Any

from .parts import API
from .paths import INSIDE


class Refused(Exception):
    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body[:300]}")
        self.status = status


@lru_cache
def _context() -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(INSIDE / "ca.crt"))
    context.load_cert_chain(str(INSIDE / "admin.crt"), str(INSIDE / "admin.key"))
    return context


def call(method: str, path: str, body: Any = None, kind: str = "application/json", timeout: float = 30) -> Any:
    host, port = API.split(":")
    connection = http.client.HTTPSConnection(host, int(port), context=_context(), timeout=timeout)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": kind})
        answer = connection.getresponse()
        data = answer.read().decode()
    finally:
        connection.close()
    if answer.status >= 400:
        raise Refused(answer.status, data)
    return json.loads(data) if data.startswith(("{", "[")) else data


def get(path: str) -> Any:
    """The object, or nothing."""
    try:
        return call("GET", path)
    except Refused as no:
        if no.status == 404:
            return None
        raise


def apply(path: str, value: dict[str, Any]) -> Any:
    """Server-side, as EKS's add-on manager does."""
    return call("PATCH", f"{path}?fieldManager=eks&force=true", value, "application/apply-patch+yaml")


def delete(path: str, **options: Any) -> None:
    try:
        call("DELETE", path, options or None)
    except Refused as no:
        if no.status not in (404, 409):
            raise


def alive() -> bool:
    try:
        return call("GET", "/readyz", timeout=2) == "ok"
    except (OSError, Refused, http.client.HTTPException):
        return False
