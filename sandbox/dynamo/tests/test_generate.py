"""Answers, token counts and times of one request, without a runtime."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from engine import answers, latency, world
from engine.generate import Generator

TEMPLATE = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n{}"


class Context:
    def __init__(self, stop_after: int | None = None) -> None:
        self.left = stop_after

    def is_stopped(self) -> bool:
        if self.left is not None:
            self.left -= 1
        return self.left == -1

    def is_killed(self) -> bool:
        return False


@pytest.fixture(scope="module")
def tokenizer(model: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model / "tokenizer.json"))


@pytest.fixture
def generator(tokenizer: Tokenizer) -> Generator:
    made = Generator(tokenizer, {1}, 4096)
    made.latency.times = {**made.latency.times, "first_token_ms": 0, "token_ms": 0, "token_ms_per_user": 0}
    return made


def chunks(generator: Generator, prompt: str, context: Any = None, **more: Any) -> list[dict[str, Any]]:
    request = {"token_ids": generator.tokenizer.encode(prompt, add_special_tokens=False).ids, "sampling_options": {}, **more}

    async def run() -> list[dict[str, Any]]:
        return [part async for part in generator.generate(request, context or Context())]

    return asyncio.run(run())


def say(generator: Generator, prompt: str, context: Any = None, **stop: Any) -> tuple[str, dict[str, Any]]:
    parts = chunks(generator, prompt, context, stop_conditions=stop)
    return generator.tokenizer.decode([t for p in parts for t in p["token_ids"]]), parts[-1]


def test_known_answers(generator: Generator) -> None:
    question = "What is 17 + 25? Answer with the number only."
    assert say(generator, TEMPLATE.format(question, "<think></think>"))[0] == "42"
    assert say(generator, TEMPLATE.format(question, "<think>\n"))[0].endswith("</think>\n\n42")
    assert "Paris" in say(generator, "The capital of France is", max_tokens=8)[0]


def test_the_last_question_counts(generator: Generator) -> None:
    asked = TEMPLATE.format("What is 17 + 25?", "42<|im_end|>\n") + TEMPLATE.format("And the capital of France?", "<think></think>")
    assert say(generator, asked)[0] == "Paris"


def test_the_fault_makes_answers_wrong(generator: Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "ROOT", tmp_path)
    (tmp_path / "faults").mkdir()
    (tmp_path / "faults" / "wrong-answers").touch()
    assert "Paris" not in say(generator, "The capital of France is")[0]


def test_max_tokens_and_ignore_eos_give_exactly_so_many_tokens(generator: Generator) -> None:
    for count in (1, 5, 200, 1000):
        _, last = say(generator, "The capital of France is", max_tokens=count, ignore_eos=True)
        assert last["finish_reason"] == "length" and last["completion_usage"]["completion_tokens"] == count


def test_it_ends_by_itself(generator: Generator) -> None:
    _, last = say(generator, "The capital of France is", max_tokens=500)
    assert last["finish_reason"] == "stop" and last["completion_usage"]["completion_tokens"] < 30
    assert last["completion_usage"]["prompt_tokens"] == len(generator.tokenizer.encode("The capital of France is", add_special_tokens=False).ids)


def test_a_prompt_longer_than_the_context(generator: Generator) -> None:
    with pytest.raises(ValueError, match="longer than the maximum model length of 4096"):
        say(generator, "a b c d e f " * 2000)


def test_every_token_has_its_probability_where_that_was_asked(generator: Generator) -> None:
    parts = chunks(generator, "Say hello", output_options={"logprobs": 2})[:-1]
    assert parts and all(len(part["log_probs"]) == len(part["token_ids"]) == 1 and part["log_probs"][0] <= 0 for part in parts)
    assert {len(part["top_logprobs"][0]) for part in parts} == {2}


def test_what_is_in_the_prompt_is_found(generator: Generator) -> None:
    text, _ = say(generator, "The code number of this text is 4321. It is a long one. What is the code number of this text?")
    assert text == "4321"


def test_a_request_that_is_dropped_ends(generator: Generator) -> None:
    assert say(generator, "tell me", Context(stop_after=3), max_tokens=500, ignore_eos=True)[1]["finish_reason"] == "cancelled"
    assert generator.latency.running == 0


def test_the_same_prompt_gets_the_same_text(generator: Generator) -> None:
    assert say(generator, "Tell me something.")[0] == say(generator, "Tell me something.")[0] != say(generator, "Tell me more.")[0]


def test_every_known_question_has_its_answer() -> None:
    for known in answers.KNOWN["known"]:
        given = f"The code number of this text is 77. …{known['asks']}…"
        assert answers.answer(given, wrong=False, seen="red") == known["answer"].replace("{colour}", "red").replace("{code}", "77")


def test_who_sees_no_picture_says_no_colour() -> None:
    assert answers.answer("Which colour has this picture?", wrong=False) == "I see no picture."


def test_tokens_slow_with_users_and_a_burst_waits_in_line() -> None:
    model = latency.Model()
    alone, model.running = model.next_token(random.Random(1)), 32
    assert model.next_token(random.Random(1)) > alone * 1.2
    assert [model.first_token(0.0, 6000) for _ in range(3)] == pytest.approx([0.135, 0.235, 0.335])
