"""The main job, in the order of a life: up, up again, look, lose the notes, connect, clean up."""

from __future__ import annotations

import json
import re
import subprocess
import time

from conftest import BINARY, World


def events(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_no_terminal_and_no_yes_is_exit_2_and_nothing_made(world: World) -> None:
    before = world.marks()
    done = world.nemo("up", "--instance", "p5en.48xlarge")
    assert done.returncode == 2, done.stderr
    assert "--yes" in done.stderr
    assert "an hour" in done.stderr
    assert world.writes(before) == []


def test_up_from_nothing_to_numbers(world: World) -> None:
    done = world.ok("up", "--instance", "p5en.48xlarge", "--yes", "--output", "json")
    told = events(done.stdout)
    result = told[-1]
    assert result["kind"] == "result"
    assert result["bench"]["errors"] == 0
    assert result["bench"]["requests"] > 0
    assert 0 < result["bench"]["ttft_ms_p50"] <= result["bench"]["ttft_ms_p95"]
    assert result["bench"]["itl_ms_p50"] > 0
    assert result["bench"]["output_tokens_per_second"] > 0
    assert result["usd_per_hour"] > 60
    assert "curl" in result["endpoint"]["curl"]
    finished = [event["step"] for event in told if event["kind"] == "finished"]
    assert sorted(finished) == sorted(["network", "cluster", "system-nodes", "gpu-nodes", "images", "filesystem", "platform", "storage", "weights", "serve", "test", "bench"])


def test_up_again_writes_nothing(world: World) -> None:
    before = world.marks()
    began = time.monotonic()
    done = world.ok("up", "--instance", "p5en.48xlarge")  # not even --yes: there is nothing to ask
    assert "nothing to do" in done.stderr
    assert world.writes(before) == []
    assert time.monotonic() - began < 30


def test_kubectl_works_through_the_entry_that_nemo_wrote(world: World) -> None:
    done = world.exec("kubectl", "get", "nodes", "-o", "name")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 3


def test_connect_and_the_curl_line(world: World) -> None:
    curl = events(world.ok("up", "--instance", "p5en.48xlarge", "--output", "json").stdout)[-1]["endpoint"]["curl"]
    with subprocess.Popen(world.command(BINARY, "connect"), cwd=world.folder, env=world.env(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as connect:
        try:
            assert connect.stdout
            for line in connect.stdout:
                if "127.0.0.1:8000" in line:
                    break
            answered = world.exec("sh", "-c", curl)
            assert "42" in json.loads(answered.stdout)["choices"][0]["message"]["content"], answered.stdout + answered.stderr
        finally:
            connect.terminate()


def test_wrong_answers_fail_and_the_next_up_asks_again(world: World) -> None:
    switch = world.run_folder / "pods" / "faults" / "wrong-answers"
    switch.touch()
    try:
        done = world.nemo("test")
    finally:
        switch.unlink()
    assert done.returncode == 16, done.stdout + done.stderr
    assert 'expected "42" in it, got "I do not know that."' in done.stderr
    before = world.marks()
    told = events(world.ok("up", "--instance", "p5en.48xlarge", "--yes", "--output", "json").stdout)
    assert [event["step"] for event in told if event["kind"] == "finished" and event["changed"]] == ["test"]
    assert world.writes(before) == []


def test_a_benchmark_outlives_its_pod_and_who_asked_for_it(world: World) -> None:
    again = f"{BINARY} bench --set bench.seed=43 --yes"
    begin = f"{again} --progress lines > said 2>&1 & nemo=$!; until grep -q 'requests: ' said; do kill -0 $nemo || exit 1; sleep 0.2; done; kill -9 $nemo"
    begun = world.exec("sh", "-c", begin)
    assert begun.returncode == 0, (world.folder / "said").read_text()
    ours = ["--namespace", "nemo", "--selector", "app.kubernetes.io/name=bench"]
    gone = world.exec("kubectl", "delete", "pod", *ours, "--field-selector", "status.phase=Running")
    assert gone.returncode == 0 and "deleted" in gone.stdout, gone.stderr
    told = events(world.exec("sh", "-c", f"{again} --output json").stdout)
    assert told[-1]["bench"]["errors"] == 0
    run = next((world.run_folder / "shared").glob(f"fs-*/runs/{told[-1]['bench']['of']}"))
    assert {path.name for path in run.iterdir()} == {"attempt-1", "attempt-2", "result.json"}
    assert told[-1]["bench"]["folder"].endswith("attempt-2")
    result = json.loads((run / "result.json").read_text())
    assert "@sha256:" in result["served"]["containers"]["vllm-worker/worker"]["image"]


def test_status_finds_it_again_without_notes(world: World) -> None:
    notes = world.folder / ".nemo" / "nemo.toml"
    text = notes.read_text()
    assert not re.search("hf_sandbox|wJalrXUtnFEMI", text)
    notes.rename(notes.with_suffix(".away"))
    done = world.ok("status", "--output", "json")
    answer = events(done.stdout)[-1]
    assert answer["noted"] is False
    assert {step["step"]: step["verdict"] for step in answer["steps"]}["cluster"] == "keep"
    assert any(resource["what"].startswith("EKS cluster") for resource in answer["exists"])
    notes.with_suffix(".away").rename(notes)


def test_cleanup_takes_ours_and_nothing_else(world: World) -> None:
    foreign = world.exec("kubectl", "create", "namespace", "somebody-elses")
    assert foreign.returncode == 0, foreign.stderr
    done = world.ok("cleanup", "--yes")
    assert "nothing of" in done.stdout
    assert world.ok("status", "--output", "json").stdout.count('"exists":[]') == 1
    assert not (world.folder / ".nemo" / "nemo.toml").exists()
    again = world.ok("cleanup", "--yes")
    assert "nothing of" in again.stdout
