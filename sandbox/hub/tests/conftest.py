from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parents[1]
MEMBER, READER = "hf_sandbox_member", "hf_sandbox_reader"


@dataclass
class Answer:
    status: int
    headers: Any
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass
class Client:
    url: str

    def ask(self, path: str, token: str | None = MEMBER, method: str = "GET", body: Any = None, follow: bool = True, **headers: str) -> Answer:
        headers = {k.replace("_", "-"): v for k, v in headers.items()}
        if token and path.startswith("/"):
            headers["Authorization"] = f"Bearer {token}"
        data = json.dumps(body).encode() if body is not None else None
        if data:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(self.url + path if path.startswith("/") else path, data, headers, method=method)
        opener = urllib.request.build_opener() if follow else urllib.request.build_opener(NoRedirect)
        try:
            with opener.open(request, timeout=30) as answer:
                return Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as refused:
            return Answer(refused.code, refused.headers, refused.read())


def start(state: Path, *args: str) -> tuple[subprocess.Popen[str], Client]:
    ask = [sys.executable, "-m", "hub", "--state", str(state), "--port", "0", "--cdn-port", "0", "--byte-factor", "10000", *args]
    hub = subprocess.Popen(ask, cwd=HERE, stdout=subprocess.PIPE, text=True)
    return hub, Client(hub.stdout.readline().split()[1])  # type: ignore[union-attr]


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    process, client = start(tmp_path_factory.mktemp("hub"))
    yield client
    process.terminate()
    process.wait()
