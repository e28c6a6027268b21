"""Kills `nemo up` with -9 at the worst instants, starts it again, and counts at the servers that each thing was made once.

The servers hold the answer of every write: it has been done, and `nemo` does not know. Then either the answer is let go or `nemo` is
killed. State writes are seen by inotify. One walk is killed many times; each start goes on where the one before was cut off.
Called by `scripts/test-kill`, inside the sandbox.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from .gate import Gate
from .nemo import Nemo
from .points import Every, OneInEachStep, aws_point, kube_point
from .servers import RUN, aws, aws_writes, kube_writes, last_call, speed
from .watch import StateWatch, read

API, NEAR_API = ("10.0.0.1", 6443), ("10.0.0.1", 7443)
RULE = {"id": "kill", "class": "write", "effect": "hold", "seconds": 3600}


def say(text: str) -> None:
    print(f"test-kill: {text}", file=sys.stderr, flush=True)


class Killer:
    """One deployment that is killed until no point is left."""

    def __init__(self, nemo: Nemo, choice: Every | OneInEachStep, progress: Path, words: list[str]) -> None:
        self.nemo, self.choice, self.progress, self.up = nemo, choice, progress, ["up", "--yes", "--output", "json", *words]
        self.process: subprocess.Popen[bytes] | None = None
        self.dying, self.kills = False, list[str]()
        self._lock = threading.Lock()
        self.gate = Gate(NEAR_API, API, RUN / "api.crt", RUN / "api.key", RUN / "ca.crt")
        self.made: Counter[str] = Counter()
        self._seen = 0
        self.load()
        StateWatch(nemo.state, self.noting, self.noted)

    # ---- progress: an interrupted `--all` goes on in the same sandbox ---------------------------------------------------------

    def load(self) -> None:
        if isinstance(self.choice, Every) and self.progress.exists():
            kept = json.loads(self.progress.read_text())
            self.choice.killed = set(kept["killed"])
            self.made = Counter(kept["made"])
            say(f"going on after {len(self.choice.killed)} points")

    def save(self) -> None:
        for write in self.gate.log[self._seen :]:
            self._seen += 1
            if write.made:
                self.made[write.made] += 1
            if write.gone and not write.gone.startswith("job "):  # what a Job does is dear: once, whoever removes it
                for what in [what for what in self.made if what.lower() == write.gone]:
                    self.made[what] -= 1
        if isinstance(self.choice, Every):
            self.progress.write_text(json.dumps({"killed": sorted(self.choice.killed), "made": self.made}))

    # ---- the points -----------------------------------------------------------------------------------------------------------

    def at(self, point: str) -> bool:
        """`nemo` is at this point; kills it if the choice says so."""
        with self._lock:
            if self.process is None or self.dying or self.process.poll() is not None or not self.choice.choose(point):
                return False
            os.kill(self.process.pid, signal.SIGKILL)
            self.dying = True  # what it still reaches before it is gone was not chosen
            self.kills.append(point)
            return True

    def noting(self) -> None:
        statuses = read(self.nemo.state)
        self.at("noting after " + (" ".join(f"{step}:{status}" for step, status in sorted(statuses.items())) or "nothing"))

    def noted(self, changed: dict[str, str]) -> None:
        for step, status in changed.items():
            self.at(f"noted {step} {status}")

    # ---- one start of nemo ----------------------------------------------------------------------------------------------------

    def once(self, limit: float) -> int | None:
        """Runs `nemo up` until it ends (its exit code) or has been killed (None)."""
        aws("POST", "/faults", RULE)
        self.gate.hold = True
        before, log = len(self.kills), (self.nemo.folder / "nemo.stderr").open("wb")
        with self._lock:
            self.dying = False
            self.process = self.nemo.start(*self.up, errors=log)
        end = time.monotonic() + limit
        while self.process.poll() is None:
            if time.monotonic() > end:
                self.process.kill()
                raise SystemExit(f"nemo up did not end within {limit:.0f} s; it was killed before at: {self.kills[-1:]}\n{self.words()}")
            self.look()
            time.sleep(0.02)
        if self.dying:
            self.look()  # what was on its way when `nemo` was killed has been done by now, and nobody was told
        self.free()
        log.close()
        self.save()
        return None if len(self.kills) > before else self.process.returncode

    def look(self) -> None:
        """Held writes: each is a point; whoever is not killed there is let go."""
        held = [(aws_point(row), row["request"]) for row in aws("GET", "/held")["waiting"]]
        held += [(kube_point(write.method, write.path), number) for number, write in list(self.gate.waiting.items())]
        for point, which in held:
            if self.dying:
                self.with_it(point)
            elif self.at(point):
                continue
            elif isinstance(which, int):
                self.gate.release(which)
            else:
                aws("POST", "/release", {"which": which})

    def with_it(self, point: str) -> None:
        """What was done and not answered when `nemo` was killed at another point."""
        if self.choice.choose(point):
            self.kills.append(point)

    def free(self) -> None:
        aws("DELETE", "/faults?id=kill")
        aws("POST", "/release", {})
        self.gate.hold = False
        self.gate.release()

    def words(self) -> str:
        return (self.nemo.folder / "nemo.stderr").read_text(errors="replace")[-3000:]

    def walk(self, minutes: float) -> None:
        """Until a start ends by itself with nothing left to kill."""
        end, said = time.monotonic() + minutes * 60, len(self.kills)
        while time.monotonic() < end:
            code = self.once(900)
            if code is None:
                say(f"{len(self.kills)} killed at: " + ", ".join(self.kills[said:]))
                said = len(self.kills)
            elif code:
                raise SystemExit(f"nemo up ended with {code} after it was killed at: {self.kills[-1] if self.kills else 'nothing'}\n{self.words()}")
            else:
                return
        raise SystemExit(f"not through within {minutes:.0f} minutes ({len(self.kills)} kills); call it again with --all: it goes on")


# ---- what was made ------------------------------------------------------------------------------------------------------------


def logical(row: dict[str, Any]) -> str:
    """A thing by its name: what AWS numbers anew each time is left out."""
    return re.sub(r"/?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|(?<=fs-)[0-9a-f]+", "", str(row["resource"]))


def made_by_aws() -> Counter[str]:
    rows = aws("GET", "/timeline")["intervals"]
    return Counter(f"{row['service']} {row['operation']} {logical(row)}" for row in rows if row["operation"].startswith("Create"))


def twice(killer: Killer) -> list[str]:
    """Everything that was made more than once."""
    found = {what: count for counts in (made_by_aws(), killer.made) for what, count in counts.items() if count > 1}
    return [f"{what} was made {count} times" for what, count in sorted(found.items())]


def writes_again(nemo: Nemo, words: list[str]) -> list[str]:
    """One more walk has nothing to do."""
    mark, (_, offset) = last_call(), kube_writes(RUN / "audit.log")
    nemo.up(*words)
    found = {**aws_writes(mark), **kube_writes(RUN / "audit.log", offset)[0]}
    return [f"a walk with nothing to do wrote: {what} x{count}" for what, count in found.items()]


def main() -> None:
    parser = argparse.ArgumentParser(prog="test-kill")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--minutes", type=float, default=150)
    parser.add_argument("--to", help="only as far as this step")
    args = parser.parse_args()
    words = ["--to", args.to] if args.to else []
    folder = Path(os.environ["KILL_FOLDER"])
    folder.mkdir(parents=True, exist_ok=True)
    aws("POST", "/endpoint", {"eks": f"https://{NEAR_API[0]}:{NEAR_API[1]}"})
    nemo = Nemo(Path(os.environ["NEMO"]), folder, speed())
    choice = Every() if args.all else OneInEachStep(args.seed)
    say("every point once" if args.all else f"once in each step, seed {args.seed}")
    killer = Killer(nemo, choice, folder / "progress.json", words)
    began = time.monotonic()
    killer.walk(args.minutes)
    wrong = twice(killer) + writes_again(nemo, words)
    wrong += [f"{step} was never killed" for step in choice.left() if step in read(nemo.state)]
    for line in wrong:
        print(line)
    points = len(choice.killed)
    print(f"{points} points killed, {len(wrong)} things wrong, {time.monotonic() - began:.0f} s" + ("" if args.all else f", seed {args.seed}"))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
