"""FSx for Lustre: a file system is a folder, made at its first mount; the emulator says whether a mount would work."""

from __future__ import annotations

import json
import os
import shutil
import threading
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from .cluster import AWS
from .parts import Options
from .paths import World

LOCK = threading.Lock()


def mount(world: World, query: dict[str, str], cluster: str, options: Options) -> dict[str, Any]:
    """Answer of the CSI driver's question; the folder is there when the answer is yes."""
    asked = urllib.parse.urlencode({"cluster": cluster, **query})
    try:
        with urllib.request.urlopen(f"{AWS}/fsx-mount?{asked}", timeout=20) as answer:
            said = json.load(answer)
    except urllib.error.HTTPError as problem:
        said = json.loads(problem.read() or b"{}")
        said.setdefault("error", f"{problem}")
    if said.get("ok"):
        with LOCK:
            make(world.folder / "shared" / said.get("path_id", query["volume"]), options)
    return said


def make(folder: Path, options: Options) -> None:
    """Pods have no way out of the sandbox: what they would fetch from a package index lies on the new file system."""
    if folder.exists():
        return
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True, mode=0o755)
    for source, name, wanted in (("wheels", "wheels", options.aiperf != "none"), ("installed", "aiperf-0.13.0", options.aiperf == "installed")):
        made = Path(options.wheels, source)
        if wanted and (made / ".complete").exists():
            lay(made, fresh / name)
    fresh.rename(folder)


def lay(source: Path, target: Path) -> None:
    """Hard links: quick, and no second copy. Files that a pod may write again in place are copied. Both paths have to be seen through
    one mount: hence the sandbox's folder by its own path, not /run/w."""

    def one(here: str, there: str) -> None:
        if os.path.basename(here).startswith("."):
            shutil.copy2(here, there)
        else:
            os.link(here, there)

    shutil.copytree(source, target, symlinks=True, copy_function=one)
