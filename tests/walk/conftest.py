"""The world that the walks go through, and what its servers have written down about them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SANDBOX = ROOT / "scripts" / "sandbox"
BINARY = os.environ.get("NEMO_BIN", "nemo")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "nemo"
SPEED = os.environ.get("NEMO_TEST_SPEED", "100")
# Looked at often, since the world is that much faster than AWS: settings like any other.
SETTINGS = "".join(
    f"[wait.{what}]\nevery_ms = 200\nlimit_s = {limit}\n"
    for what, limit in {"stack": 300, "cluster": 300, "nodes": 300, "addon": 300, "filesystem": 300, "rollout": 600, "job": 600}.items()
)


class World:
    """One sandbox by name, and a working folder with nemo.toml in it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.run_folder = CACHE / "sandbox" / name
        self.before = (0, 0)
        (folder / "home").mkdir()
        (folder / "nemo.toml").write_text(SETTINGS)

    def sandbox(self, verb: str, *args: str) -> None:
        done = subprocess.run([SANDBOX, verb, "--name", self.name, *args], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"sandbox {verb}: {done.stdout}{done.stderr}"

    def command(self, *command: str) -> list[str]:
        return [str(SANDBOX), "exec", "--name", self.name, "--", *command]

    def env(self, **more: str) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.folder / "home"), "XDG_CACHE_HOME": str(CACHE.parent), "NO_COLOR": "1", **more}

    def exec(self, *command: str, timeout: float = 600, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*command), cwd=self.folder, env=self.env(**env), capture_output=True, text=True, timeout=timeout)

    def nemo(self, *args: str, timeout: float = 900, **env: str) -> subprocess.CompletedProcess[str]:
        return self.exec(BINARY, *args, timeout=timeout, **env)

    def ok(self, *args: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        done = self.nemo(*args, **kwargs)
        assert done.returncode == 0, f"nemo {' '.join(args)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def admin(self, path: str, body: Any = None, method: str = "") -> Any:
        method = method or ("GET" if body is None else "POST")
        data = [] if body is None else ["-H", "content-type: application/json", "-d", json.dumps(body)]
        done = self.exec("curl", "-sS", "--fail-with-body", "-X", method, *data, f"http://aws.sandbox:5005{path}")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout or "null")

    def fault(self, **rule: Any) -> None:
        self.admin("/_sandbox/faults", [rule])

    def no_faults(self) -> None:
        self.admin("/_sandbox/faults", method="DELETE")

    def marks(self) -> tuple[int, int]:
        """Where the servers' journals end now: for `writes`."""
        return self._size("journal.jsonl"), self._size("audit.log")

    def writes(self, since: tuple[int, int] = (0, 0)) -> list[str]:
        """Every write that a client has asked of AWS or of the API server since then, as the servers noted it."""
        aws = [f"{row['service']}:{row['operation']}" for row in self._rows("journal.jsonl", since[0]) if row["class"] == "write" and not row["via"]]
        kube = [f"{row['verb']} {row.get('objectRef', {}).get('resource', row['requestURI'])}" for row in self._rows("audit.log", since[1]) if self._ours(row)]
        return aws + kube

    @staticmethod
    def _ours(row: dict[str, Any]) -> bool:
        review = row.get("objectRef", {}).get("resource", "").endswith("reviews")
        # A dry run stores nothing.
        return row["user"]["username"].startswith("arn:aws:") and not review and "dryRun=All" not in row["requestURI"]

    def _size(self, journal: str) -> int:
        path = self.run_folder / journal
        return path.stat().st_size if path.exists() else 0

    def _rows(self, journal: str, since: int) -> list[dict[str, Any]]:
        path = self.run_folder / journal
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(since)
            return [json.loads(line) for line in file if line.strip()]


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A fresh, empty world for each file of tests."""
    world = World("test-" + Path(request.fspath).stem.removeprefix("test_").replace("_", "-"), tmp_path_factory.mktemp("walk"))
    subprocess.run([SANDBOX, "down", "--name", world.name], capture_output=True, timeout=120)
    world.sandbox("up", "--speed", SPEED)
    try:
        yield world
    finally:
        world.sandbox("down")
