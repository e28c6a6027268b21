"""The real frontend and the worker on loopback, with file discovery; at last the real aiperf against them."""

from __future__ import annotations

import json
import statistics
import subprocess
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MODEL
from serving import HERE, PROGRAM, QUESTION, ask, serving

@pytest.fixture(scope="module")
def served(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    with serving(tmp_path_factory.mktemp("serving")) as made:
        made.worker("worker", model)
        made.frontend()
        made.listed()
        yield made.url, made.system("worker"), made.work


def test_the_model_is_listed_and_healthy(served: tuple[str, str, Path]) -> None:
    url, system, _ = served
    assert [m["id"] for m in ask(f"{url}/v1/models")["data"]] == [MODEL]
    assert ask(f"{url}/health")["status"] == "healthy"
    assert ask(f"{system}/health")["status"] == "ready"
    assert ask(f"{system}/live")["status"] == "ready"


def test_chat_and_completion_know_their_answers(served: tuple[str, str, Path]) -> None:
    url = served[0]
    message = ask(f"{url}/v1/chat/completions", {"model": MODEL, "messages": QUESTION})["choices"][0]["message"]
    assert message["content"].strip() == "42" and "</think>" not in message["reasoning_content"]
    off = ask(f"{url}/v1/chat/completions", {"model": MODEL, "messages": QUESTION, "chat_template_kwargs": {"enable_thinking": False}})
    assert off["choices"][0]["message"]["content"] == "42"
    done = ask(f"{url}/v1/completions", {"model": MODEL, "prompt": "The capital of France is", "max_tokens": 8})
    assert "Paris" in done["choices"][0]["text"] and done["usage"]["completion_tokens"] == 8


def test_a_stop_string_ends_the_text(served: tuple[str, str, Path]) -> None:
    done = ask(f"{served[0]}/v1/completions", {"model": MODEL, "prompt": "The capital of France is", "stop": ["and"], "max_tokens": 30})
    assert done["choices"][0]["text"].strip() == "Paris," and done["choices"][0]["finish_reason"] == "stop"


def test_it_streams_a_token_at_a_time_and_tells_the_usage(served: tuple[str, str, Path]) -> None:
    body = {"model": MODEL, "messages": QUESTION, "max_tokens": 50, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
    lines = [json.loads(x[6:]) for x in ask(f"{served[0]}/v1/chat/completions", body).splitlines() if x.startswith("data: {")]
    assert len(lines) > 40
    assert next(x["usage"] for x in lines if x.get("usage"))["completion_tokens"] == 50


def test_wrong_answers_on_demand(served: tuple[str, str, Path]) -> None:
    switch = served[2] / "root" / "faults" / "wrong-answers"
    switch.touch()
    try:
        done = ask(f"{served[0]}/v1/chat/completions", {"model": MODEL, "messages": QUESTION})
        assert "42" not in done["choices"][0]["message"]["content"]
    finally:
        switch.unlink()


def test_another_models_name_is_not_found(served: tuple[str, str, Path]) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(f"{served[0]}/v1/completions", {"model": "nvidia/other", "prompt": "x"})
    assert refused.value.code == 404


def test_aiperf_measures_what_was_asked(served: tuple[str, str, Path], model: Path) -> None:
    folder = subprocess.run([HERE.parent / "aiperf" / "setup.sh"], capture_output=True, text=True, check=True).stdout.strip()
    out = served[2] / "artifacts"
    words = [
        "python3", "-m", "aiperf", "profile", "--model", MODEL, "--url", served[0], "--endpoint-type", "chat", "--streaming", "--tokenizer", str(model),
        "--concurrency", "2", "--request-count", "10", "--isl", "100", "--osl", "20", "--random-seed", "7", "--extra-inputs", "ignore_eos:true", "--ui", "none",
        "--artifact-dir", str(out), "--no-gpu-telemetry", "--num-dataset-entries", "10", "--use-server-token-count",
    ]  # fmt: skip
    env = {"PATH": "/usr/bin:/bin", "HOME": str(served[2]), "PYTHONPATH": f"{folder}/installed"}
    done = subprocess.run([PROGRAM, *words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    records = [json.loads(line)["metrics"] for line in (out / "profile_export.jsonl").read_text().splitlines()]
    assert len(records) == 10
    for record in records:
        assert record["output_sequence_length"]["value"] == 20
        assert 20 < record["time_to_first_token"]["value"] < 5000
    # Of the typical one: a machine that is busy for a moment brings an answer's tokens in one piece.
    assert statistics.median(record["inter_token_latency"]["value"] for record in records) > 5
