"""What the sandbox tells a program in a pod: a folder that a product never looks at."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(os.environ.get("SANDBOX_ROOT", "/run/w/pods"))


def speed() -> float:
    """How many times faster than real life loading is to be."""
    try:
        return max(1.0, float((ROOT / "speed").read_text()))
    except (OSError, ValueError):
        return max(1.0, float(os.environ.get("SANDBOX_SPEED") or 1))


def fault(name: str) -> bool:
    return (ROOT / "faults" / name).exists()
