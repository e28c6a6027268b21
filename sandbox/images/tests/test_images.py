"""The list, the charts and the storage, without a server; the registry itself is asked in test_registry.py."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from images import charts, plan

SANDBOX = Path(__file__).resolve().parents[2]
LIST = SANDBOX / "images" / "images.toml"
PLATFORM = SANDBOX.parent / "configs" / "platform.toml"


@pytest.fixture(scope="module")
def wanted() -> plan.Plan:
    return plan.load(LIST)


def test_every_reference_of_the_versions_file_is_made(wanted: plan.Plan) -> None:
    references = plan.references(PLATFORM)
    assert len(references) >= 10
    assert plan.missing(wanted, references) == []


def test_a_reference_without_an_entry_is_named(wanted: plan.Plan) -> None:
    assert plan.missing(wanted, ["ghcr.io/foo/bar:1", "docker.io/alpine/helm:9"]) == ["ghcr.io/foo/bar:1", "docker.io/alpine/helm:9"]


def test_two_hosts_cannot_share_a_repository(tmp_path: Path) -> None:
    entry = '[[images]]\nname = "{}/a/b:1"\nprogram = "p"\nlayers = []\n'
    path = tmp_path / "list.toml"
    path.write_text('[programs]\np = "program"\n' + entry.format("nvcr.io") + entry.format("docker.io"))
    with pytest.raises(SystemExit, match="a/b is on docker.io and on nvcr.io"):
        plan.load(path)


def test_an_unknown_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.toml"
    path.write_text('[programs]\np = "program"\n[[images]]\nname = "nvcr.io/a:1"\nprogram = "q"\nlayers = []\n')
    with pytest.raises(SystemExit, match="no program 'q'"):
        plan.load(path)


def test_the_runtime_image_is_labelled_and_about_100_mb(wanted: plan.Plan) -> None:
    push = next(p for p in wanted.pushes if p.repository.endswith("vllm-runtime"))
    assert sum({b.digest: b.size for m in push.manifests for b in m.blobs}.values()) == pytest.approx(100e6, rel=0.1)
    config = json.loads(b"".join(push.manifests[0].blobs[0].make()))
    assert config["config"]["Labels"]== {"nemo.sandbox/wrapper": "dynamo-runtime"}
    layers = [gzip.decompress(b"".join(b.make())) for b in push.manifests[0].blobs[1:2]]
    assert tarfile.open(fileobj=io.BytesIO(layers[0])).getnames()


def test_archives_hold_a_chart_whose_schema_refuses_unknown_keys(wanted: plan.Plan) -> None:
    assert sorted(a.split("/")[0] for a in wanted.archives) == ["aws.github.io", "helm.ngc.nvidia.com", "nvidia.github.io"]
    for address, data in wanted.archives.items():
        files = tarfile.open(fileobj=io.BytesIO(data), mode="r:gz")
        name = files.getnames()[0].split("/")[0]
        assert f"{name}-" in address
        schema = json.load(files.extractfile(f"{name}/values.schema.json"))  # type: ignore[arg-type]
        assert schema["additionalProperties"] is False and "affinity" not in schema["properties"].get("affinity", {})


def test_what_kubernetes_checks_is_left_to_it() -> None:
    schema = charts.schema({"image": {"tag": ""}, "affinity": {"nodeAffinity": {}}, "args": []})
    assert schema["properties"] == {
        "image": {"type": "object", "properties": {"tag": {}}, "additionalProperties": False}, "affinity": {}, "args": {},
    }  # fmt: skip
