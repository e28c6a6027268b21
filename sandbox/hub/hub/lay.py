"""Writes a repository's files into a folder, without a server: python -m hub.lay ORG/NAME FOLDER [--byte-factor N]"""

from __future__ import annotations

import argparse
from pathlib import Path

from . import catalogue

CATALOGUE = Path(__file__).parent.parent / "catalogue.toml"


def lay(name: str, folder: Path, byte_factor: int | None) -> None:
    repo = catalogue.load(CATALOGUE, byte_factor).repos[name]
    for path, entry in repo.commits[repo.refs["main"]].entries.items():
        at = folder / path
        at.parent.mkdir(parents=True, exist_ok=True)
        with at.open("wb") as file:
            for piece in entry.content.pieces(0, entry.size):
                file.write(piece.data)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repo")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--byte-factor", type=int)
    args = parser.parse_args()
    lay(args.repo, args.folder, args.byte_factor)
