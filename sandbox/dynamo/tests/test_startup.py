"""What ends a worker before it answers, in the engine's words."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine import startup


def args(tp: int = 8, pp: int = 1, nodes: int = 1) -> SimpleNamespace:
    return SimpleNamespace(tensor_parallel_size=tp, pipeline_parallel_size=pp, nnodes=nodes)


def test_gpus_are_those_that_the_node_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7")
    startup.check_devices(args())
    startup.check_devices(args(pp=2, nodes=2))
    with pytest.raises(ValueError, match=r"World size \(16\) is larger than the number of available GPUs \(8\)"):
        startup.check_devices(args(pp=2))
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(ValueError, match=r"World size \(8\) is larger than the number of available GPUs \(2\)"):
        startup.check_devices(args())
    monkeypatch.delenv("NVIDIA_VISIBLE_DEVICES")
    with pytest.raises(RuntimeError, match="Failed to infer device type"):
        startup.check_devices(args(tp=1))


def test_a_whole_model_is_read(model: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SANDBOX_SPEED", "10000")
    startup.check_model(str(model), trust_remote_code=True)
    startup.load(str(model))
    assert "Loading safetensors checkpoint shards: 100% Completed | 50/50" in capfd.readouterr().err


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Invalid repository ID or local directory specified"):
        startup.check_model(str(tmp_path / "nothing"), trust_remote_code=True)


def test_remote_code_has_to_be_trusted(model: Path) -> None:
    with pytest.raises(ValueError, match="contains custom code which must be executed"):
        startup.check_model(str(model), trust_remote_code=False)


def test_no_tokenizer(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    with pytest.raises(OSError, match="Can't load tokenizer"):
        startup.check_model(str(copy), trust_remote_code=True)


def test_a_shard_that_is_missing(copy: Path) -> None:
    (copy / "model-00007-of-00050.safetensors").unlink()
    index = json.loads((copy / "model.safetensors.index.json").read_text())
    lost = min(t for t, f in index["weight_map"].items() if "00007-of" in f)
    with pytest.raises(ValueError, match="Following weights were not initialized from checkpoint") as why:
        startup.shards(str(copy))
    assert lost in str(why.value)


def test_no_shard_at_all(copy: Path) -> None:
    for shard in copy.glob("*.safetensors"):
        shard.unlink()
    with pytest.raises(RuntimeError, match="Cannot find any model weights"):
        startup.shards(str(copy))


def test_a_shard_that_is_cut(copy: Path) -> None:
    shard = copy / "model-00003-of-00050.safetensors"
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size - 1)
    with pytest.raises(startup.SafetensorError, match="file not fully covered"):
        startup.read(shard)


def test_a_shard_that_is_no_safetensors_file(copy: Path) -> None:
    shard = copy / "model-00003-of-00050.safetensors"
    shard.write_bytes(b"<html>" + bytes([255] * 100))
    with pytest.raises(startup.SafetensorError, match="header too large"):
        startup.read(shard)
