"""The upstream registry's storage, made once and then read by every sandbox: a folder named by the hash of what it is made from."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import httpx

from . import charts, plan
from .registry import Registry

CODE = Path(__file__).resolve().parent


def place(cache: Path, listing: Path) -> Path:
    digest = hashlib.sha256(listing.read_bytes())
    for folder in (CODE, charts.OWN):
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc"):
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return cache / "images" / digest.hexdigest()[:12]


def make(cache: Path, listing: Path) -> Path:
    """Where the storage is; made first if it is not there."""
    at = place(cache, listing)
    at.parent.mkdir(parents=True, exist_ok=True)
    with at.with_suffix(".lock").open("w") as lock:  # two sandboxes may want it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (at / "complete").exists():
            shutil.rmtree(at, ignore_errors=True)
            _fill(at, plan.load(listing))
            (at / "complete").touch()
    return at


def _fill(at: Path, wanted: plan.Plan) -> None:
    for address, data in wanted.archives.items():
        file = at / "charts" / address
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    hosts: dict[str, list[str]] = {}
    for push in wanted.pushes:
        if push.repository not in hosts.setdefault(push.host, []):
            hosts[push.host].append(push.repository)
    (at / "hosts.json").write_text(json.dumps(hosts, indent=1))
    port = _free_port()
    settings = {
        "REGISTRY_HTTP_ADDR": f"127.0.0.1:{port}",
        "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": str(at / "registry"),
        "OTEL_TRACES_EXPORTER": "none",
    }
    # It logs every blob that is not there yet as an error: kept beside the storage, not shown.
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as config, (at / "registry.log").open("w") as log:
        config.write("version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: x}}\nhttp: {addr: x}\n")
        config.flush()
        server = subprocess.Popen(["docker-registry", "serve", config.name], env={**os.environ, **settings}, stderr=log)
        try:
            _wait(f"http://127.0.0.1:{port}/v2/", server, at / "registry.log")
            registry = Registry(f"http://127.0.0.1:{port}")
            for push in wanted.pushes:
                registry.push(push)
        finally:
            server.terminate()
            server.wait()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(100):
        try:
            httpx.get(url)
            return
        except httpx.TransportError:
            if server.poll() is not None:
                raise SystemExit(f"docker-registry ended with {server.returncode} before it answered: see {log}") from None
            time.sleep(0.05)
    raise SystemExit("docker-registry does not answer after 5 s")
