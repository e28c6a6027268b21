"""What runs inside the namespaces. Two layers: the outer one is what `exec` enters (the network, the names, the sandbox's CA; the
machine's own /proc, so that signals, exit codes and terminals are as always), the inner one has the parts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from . import certificates, control, parts
from .keeper import Keeper, settings
from .paths import INSIDE, Wrong, World, world


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise Wrong(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")


def outer(name: str) -> None:
    """Network and names; then holds the inner layer."""
    here = world(name)
    folder = here.folder
    run("ip", "link", "set", "lo", "up")
    # In table main, not local: a pod's own /32 route has to win over this one.
    run("ip", "route", "add", "local", "10.0.0.0/8", "dev", "lo", "table", "main")
    for address in ("10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32"):
        run("ip", "addr", "add", address, "dev", "lo")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    (folder / "hosts").write_text("127.0.0.1 localhost\n10.0.0.1 " + " ".join(here.read("hosts.json")) + "\n")
    (folder / "resolv.conf").write_text("nameserver 10.0.0.2\noptions timeout:2 attempts:1\n")
    for source, target in (("hosts", "/etc/hosts"), ("resolv.conf", "/etc/resolv.conf"), ("bundle.crt", str(certificates.SYSTEM_BUNDLE))):
        run("mount", "--bind", str(folder / source), os.path.realpath(target))
    # A child, not an exec: `unshare --mount` leaves its own process in the inner layer, and `exec` has to enter this one. It ends with us.
    inner_layer = ["unshare", "--pid", "--mount", "--uts", "--fork", "--kill-child", "--mount-proc", sys.executable, "-m", "world.inside", "inner", name]
    sys.exit(subprocess.call(["setpriv", "--pdeathsig", "KILL", *inner_layer]))


def first_process() -> None:
    """Process 1 takes in the orphans of all parts; the keeper is its child, and the world ends with it."""
    child = os.fork()
    if child == 0:
        return
    while True:
        pid, status = os.wait()
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def inner(name: str) -> None:
    first_process()
    here = world(name)
    run("mount", "-t", "tmpfs", "tmpfs", "/run")  # `ip netns` and the kubelet write there
    run("mount", "-t", "tmpfs", "tmpfs", "/var/log")
    INSIDE.mkdir()
    run("mount", "--bind", str(here.folder), str(INSIDE))
    os.chdir(INSIDE)
    for folder in ("shared", "images", "n", "ecr", "pods/faults", "pods/sys"):
        (INSIDE / folder).mkdir(parents=True, exist_ok=True)
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    say = lambda line: print(line, flush=True)  # noqa: E731
    try:
        keeper = Keeper(here, settings(here))
        control.serve(keeper)
        keeper.start(say)
    except Wrong as problem:
        say(f"failed\n{problem}")
        sys.exit(1)
    say("ready")
    # From here on nobody reads what is said.
    log = os.open(here.logs / "world.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for one in (1, 2):
        os.dup2(log, one)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.Event().wait()


if __name__ == "__main__":
    try:
        {"outer": outer, "inner": inner}[sys.argv[1]](sys.argv[2])
    except Wrong as problem:
        print(f"failed\n{problem}", flush=True)
        sys.exit(1)
