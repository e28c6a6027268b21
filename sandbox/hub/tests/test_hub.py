"""What clients of the hub rely on: access, listing, digests, redirects, ranges, faults, and the model's own files."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE, MEMBER, READER, Client, start

MODEL = "nvidia/NVIDIA-Nemotron-3.5-Super-VL-120B-A12B-BF16"
TINY = "sandbox/tiny-model"


def tree(hub: Client, repo: str = MODEL) -> dict[str, Any]:
    return {e["path"]: e for e in hub.ask(f"/api/models/{repo}/tree/main?recursive=True").json() if e["type"] == "file"}


def test_whoami(hub: Client) -> None:
    assert hub.ask("/api/whoami-v2").json()["name"] == "member"
    assert hub.ask("/api/whoami-v2", token=None).status == 401
    assert hub.ask("/api/whoami-v2", token="hf_wrong").status == 401


def test_a_gated_repository_shows_its_list_and_keeps_its_files(hub: Client) -> None:
    assert hub.ask(f"/api/models/{MODEL}", token=READER).json()["gated"] == "auto"
    assert hub.ask(f"/api/models/{MODEL}/tree/main", token=READER).status == 200
    for token, status in ((READER, 403), (None, 401), (MEMBER, 200)):
        assert hub.ask(f"/{MODEL}/resolve/main/config.json", token=token).status == status
        assert hub.ask(f"/api/models/{MODEL}/auth-check", token=token).status == status
    assert hub.ask(f"/{MODEL}/resolve/main/config.json", token=READER).headers["X-Error-Code"] == "GatedRepo"


def test_every_file_has_the_size_and_digest_that_the_list_says(hub: Client) -> None:
    files = tree(hub)
    assert len([p for p in files if p.endswith(".safetensors")]) == 50
    for path, entry in files.items():
        data = hub.ask(f"/{MODEL}/resolve/main/{path}").body
        assert len(data) == entry["size"], path
        if "lfs" in entry:
            assert hashlib.sha256(data).hexdigest() == entry["lfs"]["oid"], path
        else:
            assert hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest() == entry["oid"], path


def test_the_index_agrees_with_the_shards(hub: Client) -> None:
    index = json.loads(hub.ask(f"/{MODEL}/resolve/main/model.safetensors.index.json").body)
    total = 0
    for shard in sorted(set(index["weight_map"].values())):
        data = hub.ask(f"/{MODEL}/resolve/main/{shard}").body
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        header.pop("__metadata__")
        assert set(header) == {t for t, s in index["weight_map"].items() if s == shard}
        end = max(t["data_offsets"][1] for t in header.values())
        assert 8 + length + end == len(data)
        total += end
    assert total == index["metadata"]["total_size"]


def test_the_whole_model_is_about_230_mb_at_the_usual_factor() -> None:
    from hub import catalogue

    repo = catalogue.load(HERE / "catalogue.toml").repos[MODEL]
    assert sum(e.size for e in repo.commits[repo.refs["main"]].entries.values()) == pytest.approx(228e6, rel=0.02)


def test_a_revision_is_a_commit_and_stays(hub: Client) -> None:
    sha = hub.ask(f"/api/models/{TINY}/revision/main").json()["sha"]
    assert hub.ask(f"/api/models/{TINY}/revision/{sha}").json()["sha"] == sha
    assert hub.ask(f"/api/models/{TINY}/revision/nowhere").status == 404
    assert hub.ask("/api/models/sandbox/nothing").status == 404


def test_large_files_are_redirected_to_signed_urls_and_ranges_are_served(hub: Client) -> None:
    path = "model-00001-of-00050.safetensors"
    answer = hub.ask(f"/{MODEL}/resolve/main/{path}", follow=False)
    size = int(answer.headers["X-Linked-Size"])
    place = answer.headers["Location"]
    assert answer.status == 302 and not place.startswith(hub.url) and size == tree(hub)[path]["size"]
    whole = hub.ask(place).body
    part = hub.ask(place, Range="bytes=100-299")
    assert part.status == 206 and part.body == whole[100:300] and part.headers["Content-Range"] == f"bytes 100-299/{size}"
    assert hub.ask(place, Range=f"bytes={size}-").status == 416
    assert hub.ask(place.replace("Signature=", "Signature=0")).status == 403


@pytest.mark.parametrize(
    ("fault", "status", "length"),
    [({"kind": "status", "status": 503}, 503, None), ({"kind": "status", "status": 429, "seconds": 1}, 429, None), ({"kind": "wrong_bytes"}, 200, 0)],
)
def test_faults_happen_as_often_as_asked(hub: Client, fault: dict[str, Any], status: int, length: int | None) -> None:
    path = "assets/images/notes.txt"
    right = hub.ask(f"/{TINY}/resolve/main/{path}").body
    hub.ask("/_sandbox/faults", method="POST", body={**fault, "repo": TINY, "path": path, "length": 4, "times": 1})
    first, second = (hub.ask(f"/{TINY}/resolve/main/{path}") for _ in range(2))
    assert first.status == status and first.body != right
    assert second.body == right
    hub.ask("/_sandbox/faults", method="DELETE")


def test_wrong_bytes_wait_for_the_request_that_holds_them(hub: Client) -> None:
    place = f"/{TINY}/resolve/main/assets/images/notes.txt"
    right = hub.ask(place).body
    hub.ask("/_sandbox/faults", method="POST", body={"kind": "wrong_bytes", "repo": TINY, "after_bytes": 2, "length": 4})
    assert hub.ask(place, Range="bytes=6-9").body == right[6:10]
    wrong = hub.ask(place, Range="bytes=0-9").body
    assert wrong[:2] == right[:2] and wrong[2:6] != right[2:6] and wrong[6:] == right[6:10]
    assert hub.ask(place, Range="bytes=0-9").body == right[:10]
    hub.ask("/_sandbox/faults", method="DELETE")


def test_bytes_sent_twice_are_counted(hub: Client) -> None:
    hub.ask("/_sandbox/bytes", method="DELETE")
    for _ in range(2):
        hub.ask(f"/{TINY}/resolve/main/config.json")
    said = hub.ask(f"/_sandbox/bytes?repo={TINY}&path=config.json").json()
    assert said["bytes_repeated"] == said["bytes_unique"] > 0


def test_rates_follow_the_sandboxs_speed(tmp_path: Path) -> None:
    process, client = start(tmp_path, "--factor", "10")  # 400 MB/s for one connection, times 10, over a byte factor of 10000: 0.4 MB/s
    try:
        began = time.monotonic()
        body = client.ask(f"/{MODEL}/resolve/main/model-00001-of-00050.safetensors").body
        assert len(body) / (time.monotonic() - began) < 600_000
    finally:
        process.terminate()
        process.wait()


def test_the_real_client_downloads_and_is_refused(hub: Client, tmp_path: Path) -> None:
    hf = HERE.parent / "dynamo" / ".venv" / "bin" / "hf"
    if not hf.exists():
        pytest.skip("the real client comes with sandbox/dynamo/setup.sh")
    env = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}

    def download(repo: str, token: str, *files: str) -> subprocess.CompletedProcess[str]:
        ask = [hf, "download", repo, *files, "--local-dir", tmp_path / repo.replace("/", "-") / token]
        return subprocess.run(ask, env={**env, "HF_TOKEN": token}, capture_output=True, text=True)

    assert download(TINY, READER).returncode == 0
    assert (tmp_path / "sandbox-tiny-model" / READER / "model.safetensors").stat().st_size == tree(hub, TINY)["model.safetensors"]["size"]
    refused = download(MODEL, READER, "config.json")
    assert refused.returncode != 0 and "requires approval" in refused.stderr
    assert download(MODEL, MEMBER, "config.json").returncode == 0
