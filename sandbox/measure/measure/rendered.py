"""What `nemo render --all` gives, read by a YAML reader that is not ours."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

# Three GPU nodes carry every topology.
WORDS = ("render", "--all", "--instance", "p5en.48xlarge", "--nodes", "3", "--quiet")
Sets = dict[str, dict[str, list[Any]]]


def command(binary: Path, *words: str) -> list[str]:
    return [str(binary), *WORDS, *words]


def all_of_them(binary: Path, folder: Path, *words: str) -> Sets:
    """Deployment (`MODEL-PRECISION/TOPOLOGY-FORM`) → file → documents; the files are left in the folder."""
    subprocess.run(command(binary, "--out", str(folder), *words), cwd=folder, check=True, stdout=subprocess.DEVNULL)
    found: Sets = {}
    for path in sorted(folder.rglob("*.yaml")):
        name = path.parent.relative_to(folder).as_posix()
        found.setdefault(name, {})[path.name] = documents(path.read_text())
    return found


def documents(text: str) -> list[Any]:
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document is not None]


def flat(sets: Sets) -> list[Any]:
    return [document for files in sets.values() for found in files.values() for document in found]
