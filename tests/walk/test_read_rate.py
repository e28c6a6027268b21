"""A volume that turned out slow: what was noted of it arrives in the manifest, and once there changes nothing more."""

from __future__ import annotations

import json

from conftest import World

NOTE = ["kubectl", "get", "configmap", "weights-done", "--namespace", "nemo", "--output", "jsonpath={.data.read_mb_s}"]
WORKER = ["kubectl", "get", "deployment", "vllm-worker", "--namespace", "nemo", "--output", "json"]


def noted(world: World, mb_s: int) -> None:
    data = json.dumps({"data": {"read_mb_s": str(mb_s), "read_streams": "8", "read_on": "2026-12-01"}})
    assert world.exec("kubectl", "patch", "configmap", "weights-done", "--namespace", "nemo", "--type", "merge", "--patch", data).returncode == 0


def test_the_engine_may_load_as_long_as_its_volume_is_slow(world: World) -> None:
    world.ok("up", "--yes", "--to", "weights")
    assert world.exec(*NOTE).stdout == "0", "files of a thousandth of the size say nothing"
    # What an agent would have noted of true ones on a slow volume: what it measures and says is tried on real files (tests/fetch.rs).
    noted(world, 180)
    world.ok("up", "--yes", "--to", "serve")
    assert world.exec(*NOTE).stdout == "180"
    template = json.loads(world.exec(*WORKER).stdout)["spec"]["template"]
    assert template["metadata"]["annotations"]["nemo.dev/read-mb-s"] == "180"
    worker = template["spec"]["containers"][0]
    budget = 2 * 227_000 // 180 + 900
    assert worker["startupProbe"]["failureThreshold"] * worker["startupProbe"]["periodSeconds"] >= budget
    assert {"name": "VLLM_ENGINE_READY_TIMEOUT_S", "value": str(budget)} in worker["env"]
    shown = world.ok("render", "--out", "manifests").stdout + (world.folder / "manifests" / "worker.yaml").read_text()
    assert "at 180 MB/s (measured on 2026-12-01 with 8 streams, of 292 MB/s provisioned)" in shown.replace('"', ""), shown


def test_once_noted_it_stays_and_nothing_is_written(world: World) -> None:
    before = world.marks()
    assert "nothing to do" in world.ok("up", "--to", "serve").stderr
    assert world.writes(before) == []
