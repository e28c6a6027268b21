"""Every step fails once, in the order of the walk: exit code, what is left, what to do next; then the same command goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import World

HUB = "http://hub.sandbox:18090/_sandbox/faults"


@dataclass
class Trouble:
    """A step, what goes wrong in it, and what nemo must make of it."""

    step: str
    code: int
    words: tuple[str, ...]
    make: Callable[[World], None]
    mend: Callable[[World], None]
    refused: bool = False  # seen before anything is begun


def aws(step: str, exit_code: int, words: tuple[str, ...], **rule: object) -> Trouble:
    return Trouble(step, exit_code, words, lambda world: world.fault(**rule), lambda world: world.no_faults())


def file_system(world: World) -> Path:
    (folder,) = (world.run_folder / "shared").iterdir()
    return folder


def shard(world: World) -> Path:
    return sorted(file_system(world).rglob("*-of-*.safetensors"))[0]


def hide(find: Callable[[World], Path]) -> tuple[Callable[[World], None], Callable[[World], None]]:
    """Moves a file or folder away and back."""
    moved: list[tuple[Path, Path]] = []

    def make(world: World) -> None:
        path = find(world)
        moved.append((path, path.with_name(path.name + ".hidden")))
        shutil.move(*moved[-1])

    def mend(world: World) -> None:
        path, hidden = moved.pop()
        shutil.rmtree(path, ignore_errors=True)
        shutil.move(hidden, path)

    return make, mend


def wrong_bytes(world: World) -> None:
    done = world.exec("curl", "-sS", "--fail-with-body", "-d", json.dumps({"kind": "wrong_bytes", "path": "*-00002-of-*", "times": None}), HUB)
    assert done.returncode == 0, done.stdout + done.stderr


def right_bytes(world: World) -> None:
    assert world.exec("curl", "-sS", "-X", "DELETE", HUB).returncode == 0


def foreign_volume(world: World) -> None:
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "nemo-shared"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "hostPath": {"path": "/else"}},
    }
    done = world.exec("sh", "-c", f"echo '{json.dumps(volume)}' | kubectl create -f -")
    assert done.returncode == 0, done.stderr


def no_foreign_volume(world: World) -> None:
    assert world.exec("kubectl", "delete", "pv", "nemo-shared").returncode == 0


def switch(world: World) -> Path:
    return world.run_folder / "pods" / "faults" / "wrong-answers"


TROUBLES = [
    aws("network", 12, ("NatGatewayLimitExceeded", "quota"), service="ec2", operation="CreateNatGateway", via="cloudformation", effect="error", code="NatGatewayLimitExceeded", nth=1),
    aws("cluster", 12, ("CreateCluster",), service="eks", operation="CreateCluster", effect="quota"),
    aws("system-nodes", 11, ("CreateNodegroup", "AccessDenied"), service="eks", operation="CreateNodegroup", match="system", effect="access-denied"),
    aws("gpu-nodes", 12, ("InsufficientInstanceCapacity",), service="eks", operation="CreateNodegroup", match='"gpu"', effect="failed", reason="InsufficientInstanceCapacity: we do not have enough p5en.48xlarge"),
    aws("images", 15, ("CreateRepository",), service="ecr", operation="CreateRepository", effect="server-error"),
    aws("filesystem", 15, ("no room",), service="fsx", operation="CreateFileSystem", effect="failed", reason="there is no room"),
    aws("platform", 11, ("CreateAddon", "AccessDenied"), service="eks", operation="CreateAddon", match="coredns", effect="access-denied"),
    Trouble("storage", 13, ("nemo-shared", "not ours"), foreign_volume, no_foreign_volume, refused=True),
    Trouble("weights", 16, ("00002-of", "hub lists"), wrong_bytes, right_bytes),
    Trouble("serve", 15, ("crashes", "not initialized from checkpoint"), *hide(shard)),
    Trouble("test", 16, ("chat",), lambda world: switch(world).touch(), lambda world: switch(world).unlink()),
    Trouble("bench", 15, ("aiperf",), lambda world: [shutil.move(p, p.with_name("." + p.name)) for p in (file_system(world) / "wheels", file_system(world) / "aiperf-0.13.0")] and None,
            lambda world: [(shutil.rmtree(p, ignore_errors=True), shutil.move(p.with_name("." + p.name), p)) for p in (file_system(world) / "wheels", file_system(world) / "aiperf-0.13.0")] and None),
]  # fmt: skip


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.step)
def test_a_step_that_fails(world: World, trouble: Trouble) -> None:
    if trouble.step != "network":  # what it stands on is there first, so that only this step fails
        before = [one.step for one in TROUBLES][: [one.step for one in TROUBLES].index(trouble.step)]
        world.ok("up", "--yes", "--to", before[-1])
    trouble.make(world)
    try:
        done = world.nemo("up", "--yes", "--to", trouble.step, "--output", "json", timeout=300)
    finally:
        trouble.mend(world)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    failure = told[-1]["failure"]
    assert done.returncode == trouble.code == failure["exit_code"], failure["message"]
    assert [event["step"] for event in told if event["kind"] == "failed"] == ([] if trouble.refused else [trouble.step])
    for word in trouble.words:
        assert word in done.stderr, done.stderr
    assert failure["hints"], failure["message"]
    assert failure["left"] or trouble.refused, "something is left, and it is told"
    assert "panicked" not in done.stderr


def test_then_the_walk_ends_and_cleanup_leaves_nothing(world: World) -> None:
    assert "tokens/s" in world.ok("up", "--yes").stdout
    assert "nothing of" in world.ok("cleanup", "--yes").stdout


def test_cleanup_goes_on_past_a_failure(world: World) -> None:
    world.ok("up", "--yes", "--to", "filesystem")
    world.fault(service="fsx", operation="DeleteFileSystem", effect="access-denied")
    try:
        done = world.nemo("cleanup", "--yes")
    finally:
        world.no_faults()
    assert done.returncode == 11, done.stderr
    assert "FSx for Lustre file system" in done.stderr
    assert "nothing of" in world.ok("cleanup", "--yes").stdout
