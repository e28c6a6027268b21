"""etcd and kube-apiserver of the sandbox's binary, alone: what takes or refuses an object needs no nodes and no controllers.

Both listen on free ports of loopback and are gone with the block.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from .nemo import REPO

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nemo"
PATIENCE = 90
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Refused(Exception):
    """What the API server answered instead."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ApiServer:
    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self.url = f"https://127.0.0.1:{_free_port()}"
        self.context = ssl.create_default_context()
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE  # its certificate is its own, made a moment ago

    def __enter__(self) -> ApiServer:
        self.folder = Path(tempfile.mkdtemp(prefix="nemo-api-"))
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        (self.folder / "tokens.csv").write_text(f"{self.token},admin,admin,system:masters\n")
        key = self.folder / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        etcd, peer = f"http://127.0.0.1:{_free_port()}", f"http://127.0.0.1:{_free_port()}"
        self._run(
            "etcd", "--data-dir", f"{self.folder}/etcd", "--listen-client-urls", etcd, "--advertise-client-urls", etcd, "--listen-peer-urls", peer,
            "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}", "--unsafe-no-fsync", "--log-level", "warn",
        )  # fmt: skip
        self._run(
            "kube-apiserver", f"--etcd-servers={etcd}", f"--secure-port={self.url.rpartition(':')[2]}", "--bind-address=127.0.0.1",
            f"--cert-dir={self.folder}", f"--token-auth-file={self.folder}/tokens.csv", "--authorization-mode=RBAC", "--service-cluster-ip-range=10.100.0.0/16",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}", "--service-account-issuer=https://kubernetes.default.svc",
        )  # fmt: skip
        end = time.monotonic() + PATIENCE
        while not self._ready():
            for process in self.processes:
                if process.poll() is not None:
                    raise SystemExit(f"{process.args[1]} ended with {process.returncode}:\n{self._log(process.args[1])}")  # type: ignore[index]
            if time.monotonic() > end:
                raise SystemExit(f"the API server is not ready after {PATIENCE} s:\n{self._log('kube-apiserver')}")
            time.sleep(0.1)

    def _run(self, part: str, *words: str) -> None:
        with (self.folder / f"{part}.log").open("wb") as log:
            command = [str(kube_binary()), part, *words]
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _log(self, part: str) -> str:
        return "\n".join((self.folder / f"{part}.log").read_text(errors="replace").splitlines()[-12:])

    def _ready(self) -> bool:
        try:
            return self.text("/readyz") == "ok"
        except (OSError, Refused):
            return False

    def text(self, path: str, method: str = "GET", body: Any = None, kind: str = "application/json") -> str:
        data = json.dumps(body).encode() if body is not None else None
        ask = urllib.request.Request(self.url + path, data, {"Authorization": f"Bearer {self.token}", "Content-Type": kind}, method=method)
        try:
            with urllib.request.urlopen(ask, timeout=60, context=self.context) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as no:
            text = no.read().decode(errors="replace")
            message = json.loads(text).get("message", text) if text.startswith("{") else text
            raise Refused(no.code, message) from None

    def get(self, path: str) -> Any:
        return json.loads(self.text(path))

    def apply(self, path: str, value: dict[str, Any], query: str = "") -> None:
        """Server-side, as nemo does."""
        self.text(f"{path}?fieldManager=nemo&force=true{query}", "PATCH", value, "application/apply-patch+yaml")

    def define(self, crd: dict[str, Any]) -> None:
        """A CustomResourceDefinition, until it is served. Nobody is there to convert: versions differ in their name alone then, and each is still held against its own schema."""
        name = crd["metadata"]["name"]
        crd = {**crd, "metadata": {"name": name}, "spec": {**crd["spec"], "conversion": {"strategy": "None"}}}
        self.apply(f"{CRDS}/{name}", crd)
        end = time.monotonic() + PATIENCE
        while not any(c["type"] == "Established" and c["status"] == "True" for c in self.get(f"{CRDS}/{name}").get("status", {}).get("conditions") or []):
            if time.monotonic() > end:
                raise SystemExit(f"{name} is not served after {PATIENCE} s")
            time.sleep(0.1)

    def resources(self, group_version: str) -> dict[str, dict[str, Any]]:
        """By kind: its name in paths, and whether it is namespaced."""
        prefix = "/api/v1" if group_version == "v1" else f"/apis/{group_version}"
        found = self.get(prefix)["resources"]
        return {one["kind"]: {**one, "prefix": prefix} for one in found if "/" not in one["name"]}


def kube_binary() -> Path:
    found = subprocess.run([str(REPO / "sandbox" / "kube" / "hash.sh")], capture_output=True, text=True, check=True).stdout.strip()
    path = CACHE / "bin" / f"sandbox-kube-{found}"
    if not path.exists():
        raise SystemExit(f"{path} is missing: run scripts/setup")
    return path


def stand_in_crds(server: ApiServer) -> list[dict[str, Any]]:
    """The sandbox's own definitions of Dynamo's kinds, with core types as this server has them."""
    documents = []
    for number, path in enumerate(("api/v1", "apis/autoscaling/v2")):
        document = server.folder / f"openapi-{number}.json"
        document.write_text(server.text(f"/openapi/v3/{path}"))
        documents.append(str(document))
    command = ["python3", "-m", "platform_operator", "crd-print", *documents]
    made = subprocess.run(command, cwd=REPO / "sandbox" / "dynamo", env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True)
    if made.returncode:
        raise SystemExit(f"the stand-in's definitions cannot be made:\n{made.stderr}")
    return list(json.loads(made.stdout)["items"])


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
