"""Tells at once when a state file is about to be written and when it has been: inotify, so that no kill comes by chance."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

CREATE, MOVED_TO = 0x100, 0x80
HEAD = struct.Struct("iIII")


class StateWatch:
    """Calls `before()` when a temporary file appears beside the state, and `after(changed)` when the state was renamed into place."""

    def __init__(self, state: Path, before: Callable[[], None], after: Callable[[dict[str, str]], None]) -> None:
        self.state, self.before, self.after = state, before, after
        self.statuses: dict[str, str] = read(state)
        state.parent.mkdir(parents=True, exist_ok=True)
        libc = ctypes.CDLL(None, use_errno=True)
        self._notices = libc.inotify_init1(os.O_CLOEXEC)
        if self._notices < 0 or libc.inotify_add_watch(self._notices, os.fsencode(state.parent), CREATE | MOVED_TO) < 0:
            raise OSError(ctypes.get_errno(), f"cannot watch {state.parent}")
        threading.Thread(target=self._run, daemon=True, name="state").start()

    def _run(self) -> None:
        while True:
            data, at = os.read(self._notices, 65536), 0
            while at < len(data):
                _, mask, _, length = HEAD.unpack_from(data, at)
                name = data[at + HEAD.size : at + HEAD.size + length].rstrip(b"\0").decode()
                at += HEAD.size + length
                if mask & CREATE and name.startswith(f".{self.state.stem}.") and name.endswith(".tmp"):
                    self.before()
                elif mask & MOVED_TO and name == self.state.name:
                    now = read(self.state)
                    changed = {step: status for step, status in now.items() if self.statuses.get(step) != status}
                    self.statuses = now
                    self.after(changed)


def read(state: Path) -> dict[str, str]:
    """Step → status; nothing where there is no state."""
    try:
        steps = tomllib.loads(state.read_text()).get("steps", {})
    except (OSError, tomllib.TOMLDecodeError):
        return {}
    return {step: str(record["status"]) for step, record in steps.items()}
