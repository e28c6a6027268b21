"""Where things lie: the repository, the cache, and each sandbox's own folder."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]
SANDBOX = REPO / "sandbox"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nemo"
BIN = CACHE / "bin"
INSIDE = Path("/run/w")  # a sandbox's folder as its parts see it: unix sockets below it need a short path

ACCOUNT, REGION, ZONES = "123456789012", "us-east-2", ("us-east-2a", "us-east-2b", "us-east-2c")
HUB_TOKEN = "hf_sandbox_member"
# The example pair of AWS's documentation; the emulator knows it from keys.toml. The second one signs for the nodes' role.
ACCESS_KEY, SECRET_KEY = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
NODE_KEY, NODE_SECRET = "AKIAI44QH8DHBEXAMPLE", "je7MtGbClwBF/2Zp9Utk/h3yCo8nvbEXAMPLEKEY"

ECR = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"
EKS_IMAGES = f"602401143452.dkr.ecr.{REGION}.amazonaws.com"  # where EKS's own add-ons come from
REGISTRIES = ("nvcr.io", "ghcr.io", "public.ecr.aws", "registry.k8s.io", "registry-1.docker.io", "docker.io", "auth.docker.io")
CHARTS = ("helm.ngc.nvidia.com", "nvidia.github.io", "aws.github.io")
NAMES = ("aws.sandbox", "hub.sandbox", "cdn.hub.sandbox", ECR, EKS_IMAGES, *REGISTRIES, *CHARTS)

PORTS = {"api": 6443, "aws": 5005, "hub": 18090, "cdn": 18091, "https": 443}  # inside, at 10.0.0.1
OUTSIDE = {"api": 26443, "aws": 25005, "hub": 28090, "cdn": 28091, "https": 20443}  # on 127.0.0.1, for the first sandbox
STEP = 10  # between one sandbox's ports and the next one's


class Wrong(Exception):
    """Something that the user has to know; its text is the whole message."""


@dataclass(frozen=True)
class World:
    """One named sandbox."""

    name: str

    @property
    def folder(self) -> Path:
        return CACHE / "sandbox" / self.name

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def socket(self) -> Path:
        return self.folder / "world.sock"

    def read(self, name: str, default: object = None) -> object:
        try:
            return json.loads((self.folder / name).read_text())
        except (OSError, ValueError):
            return default

    def write(self, name: str, value: object) -> None:
        path = self.folder / name
        path.with_suffix(".new").write_text(json.dumps(value, indent=1))
        path.with_suffix(".new").rename(path)


def world(name: str) -> World:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", name):
        raise Wrong(f"{name!r} is no name for a sandbox: up to 32 of a-z, 0-9 and -, beginning and ending with a letter or digit")
    found = World(name)
    if len(str(found.socket)) > 100:
        raise Wrong(f"{found.socket} is too long a path for a unix socket: choose a shorter --name, or another XDG_CACHE_HOME")
    return found


def everyone() -> list[World]:
    root = CACHE / "sandbox"
    return [World(path.name) for path in sorted(root.iterdir()) if path.is_dir()] if root.is_dir() else []


def python_home() -> Path:
    """The installation that every virtual environment here points back to."""
    return Path(sys.base_prefix).resolve()
