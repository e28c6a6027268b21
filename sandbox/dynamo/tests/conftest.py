from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from engine import flags

flags.install()  # before anything imports dynamo.vllm.args

MODEL = "nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16"
QWEN = "nvidia/Cosmos-Reason2-8B"
HUB = Path(__file__).resolve().parents[2] / "hub"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's folder as it comes from the hub, with smaller shards (23 MB)."""
    return lay(tmp_path_factory.mktemp("model"), MODEL)


def lay(folder: Path, repository: str) -> Path:
    python = subprocess.run([HUB / "setup.sh"], capture_output=True, text=True, check=True).stdout.strip() + "/bin/python"
    subprocess.run([python, "-m", "hub.lay", repository, str(folder), "--byte-factor", "10000"], cwd=HUB, check=True)
    return folder


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that Dynamo's encode worker knows."""
    return lay(tmp_path_factory.mktemp("qwen"), QWEN)


@pytest.fixture
def copy(model: Path, tmp_path: Path) -> Path:
    """One that a test may break."""
    return Path(shutil.copytree(model, tmp_path / "model"))
