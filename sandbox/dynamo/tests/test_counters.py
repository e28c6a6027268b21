from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from engine import counters, world
from engine.counters import Counters

SMI = Path(__file__).resolve().parents[1] / "path" / "nvidia-smi"
QUERY = "--query-gpu=index,utilization.gpu,memory.used,power.draw"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node's figures, as the node lays them."""
    for n in range(2):
        gpu = tmp_path / "sys" / "sandbox" / "gpu" / str(n)
        gpu.mkdir(parents=True)
        for name, value in {"name": "NVIDIA H200", "memory.total": 143771, "memory.used": 0, "utilization.gpu": 0, "power.draw": 78}.items():
            (gpu / name).write_text(f"{value}\n")
    (tmp_path / "faults").mkdir()
    monkeypatch.setattr(world, "ROOT", tmp_path)
    monkeypatch.setattr(counters, "PERIOD", 0.05)
    return tmp_path


def smi(root: Path, *words: str, gpus: str = "0,1") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SANDBOX_SYS": str(root / "sys"), "NVIDIA_VISIBLE_DEVICES": gpus}
    return subprocess.run([SMI, *words], env=env, capture_output=True, text=True)


def use(root: Path) -> list[int]:
    return [int((root / "sys" / "sandbox" / "gpu" / str(n) / "utilization.gpu").read_text() or 0) for n in range(2)]


def test_work_shows_and_ends(root: Path) -> None:
    with Counters(["0", "1"], 0.5) as working:
        for _ in range(50):
            working.step()
            time.sleep(0.005)
            if all(use(root)):
                break
        assert all(use(root))
        assert smi(root, QUERY, "--format=csv,noheader,nounits").stdout.splitlines()[1].split(", ")[2] == str(529 + 143771 // 2)
    assert smi(root, QUERY, "--format=csv").stdout.splitlines() == [
        "index, utilization.gpu [%], memory.used [MiB], power.draw [W]", "0, 0 %, 0 MiB, 78.00 W", "1, 0 %, 0 MiB, 78.00 W",
    ]  # fmt: skip


def test_one_gpu_can_be_made_idle(root: Path) -> None:
    (root / "faults" / "gpu-idle-1").touch()
    with Counters(["0", "1"], 0.5) as working:
        for _ in range(50):
            working.step()
            time.sleep(0.005)
            if use(root)[0]:
                break
        assert use(root)[0] > 0 and use(root)[1] == 0


def test_nvidia_smi_sees_only_what_the_container_was_given(root: Path) -> None:
    assert smi(root, "-L", gpus="1").stdout.startswith("GPU 1: NVIDIA H200 (UUID: GPU-")
    assert smi(root, "-L", gpus="").returncode == 9
    assert smi(root, "--query-gpu=nope", "--format=csv").returncode == 2
    assert "knows -L" in smi(root, "dmon").stderr
