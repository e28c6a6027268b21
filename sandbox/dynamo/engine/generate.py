"""One request: tokens in, tokens out, as the engine behind Dynamo's frontend."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from tokenizers import Tokenizer

from . import answers, world
from .encode import Pictures, Seen
from .latency import Model
from .metrics import Engine
from .transfer import Failed, Transfer

SURE = -0.01  # the logarithm of its probability
DEFAULT_LENGTHS = (40, 160)  # of text that nobody asked to be longer or shorter


class Generator:
    def __init__(
        self, tokenizer: Tokenizer, stops: set[int], most: int, step: Callable[[], None] = lambda: None, metrics: Engine | None = None, transfer: Transfer | None = None,
        pictures: Pictures | None = None,
    ) -> None:  # fmt: skip
        self.tokenizer, self.stops, self.most = tokenizer, stops, most
        self.metrics, self.transfer, self.pictures = metrics, transfer, pictures
        self.latency, self.step = Model(), step
        self.filler: list[int] = tokenizer.encode(answers.TEXT, add_special_tokens=False).ids

    def tokens(self, prompt: str, seed: int | None, ignore_eos: bool, seen: str | None = None) -> Iterator[int]:
        """What the model would say if nobody stopped it. Ends with the end-of-sequence token, unless that is to be ignored."""
        mark = answers.seed(prompt, seed)
        known = answers.answer(prompt, world.fault("wrong-answers"), seen)
        if answers.thinks(prompt):
            yield from self._ids(answers.THOUGHT)
        low, high = DEFAULT_LENGTHS
        if known is not None:
            yield from self._ids(known)
        else:
            yield from self._running_text(mark, low + mark % (high - low))
        if not ignore_eos:
            yield min(self.stops)
            return
        while True:
            yield from self._running_text(mark, len(self.filler))

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def _running_text(self, mark: int, count: int) -> Iterator[int]:
        for n in range(count):
            yield self.filler[(mark + n) % len(self.filler)]

    async def generate(self, request: dict[str, Any], context: Any) -> AsyncIterator[dict[str, Any]]:
        prompt_ids: list[int] = request["token_ids"]
        stop = request.get("stop_conditions") or {}
        asked = len(prompt_ids) + (await self._seen(request, context)).more
        room = self.most - asked
        if room <= 0:
            # As vLLM 0.31.0's input_processor says it; Dynamo's bindings make HTTP 400 of a ValueError.
            longer = f"The decoder prompt (length {asked}) is longer than the maximum model length of {self.most}."
            just = f"The decoder prompt (length {asked}) plus the number of requested output tokens (at least 1) is longer than the maximum model length of {self.most}."
            raise ValueError(longer if room else just)
        limit = min(stop.get("max_tokens") or room, room)
        prompt = self.tokenizer.decode(prompt_ids, skip_special_tokens=False)
        seed = (request.get("sampling_options") or {}).get("seed")
        ends = self.stops | {*(stop.get("stop_token_ids") or []), *(stop.get("stop_token_ids_hidden") or [])}
        said = 0
        self._running(1)
        try:
            dice = random.Random(answers.seed(prompt, seed))
            due = time.monotonic() + (0 if await self._fetched(request) else self._prefill(asked))
            colour = request.get("seen") or (self.pictures.colour(request) if self.pictures else None)
            logprobs = (request.get("output_options") or {}).get("logprobs")
            for token in self.tokens(prompt, seed, bool(stop.get("ignore_eos")), colour):
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if context is not None and (context.is_stopped() or context.is_killed()):
                    yield self._last([], "cancelled", asked, said)
                    return
                due += self.latency.next_token(dice)
                said += 1
                self._stepped()
                if token in ends and said >= (stop.get("min_tokens") or 0) and not stop.get("ignore_eos"):
                    yield self._last([token], "stop", asked, said)
                    return
                if said >= limit:
                    yield self._last([token], "length", asked, said)
                    return
                yield {"token_ids": [token], "index": 0, **({} if logprobs is None else self._logprobs(token, logprobs))}
        except Failed as why:
            yield {"token_ids": [], "finish_reason": f"error: {why}"}
        finally:
            self._running(-1)

    async def prefill(self, request: dict[str, Any], context: Any) -> AsyncIterator[dict[str, Any]]:
        """A prefill worker's part: one token, and where the rest of the engines find the prompt's KV."""
        prompt_ids: list[int] = request["token_ids"]
        seen = await self._seen(request, context)
        asked = len(prompt_ids) + seen.more
        self._running(1)
        try:
            await asyncio.sleep(self._prefill(asked))
            prompt = self.tokenizer.decode(prompt_ids, skip_special_tokens=False)
            token = next(self.tokens(prompt, (request.get("sampling_options") or {}).get("seed"), False))
            self._stepped()
            handed = {"kv_transfer_params": self.transfer.hold(context.id(), asked)} if self.transfer else {}
            if seen.handed_over:
                handed["embedding_params"] = seen.handed_over
            yield {
                "token_ids": [token], "index": 0, "disaggregated_params": handed or None,
                "completion_usage": {"prompt_tokens": asked, "completion_tokens": 1, "total_tokens": asked + 1},
            }  # fmt: skip
        finally:
            self._running(-1)

    async def _seen(self, request: dict[str, Any], context: Any) -> Seen:
        return await self.pictures.seen(request, context) if self.pictures else Seen([])

    async def _fetched(self, request: dict[str, Any]) -> bool:
        """Whether another engine has read the prompt, and its KV has come here."""
        if "fetched" in request:
            return bool(request["fetched"])
        given = ((request.get("prefill_result") or {}).get("disaggregated_params") or {}).get("kv_transfer_params")
        return bool(given and self.transfer and await self.transfer.read(given))

    def _prefill(self, tokens: int) -> float:
        if self.metrics:
            self.metrics.prompt.inc(tokens)
        return self.latency.first_token(time.monotonic(), tokens)

    def _stepped(self) -> None:
        self.step()
        if self.metrics:
            self.metrics.generated.inc()

    def _running(self, by: int) -> None:
        self.latency.running += by
        if self.metrics:
            self.metrics.running.set(self.latency.running)

    def _logprobs(self, token: int, most: int) -> dict[str, Any]:
        """Of an engine that is sure of itself: the token that it says has nearly all of the probability."""
        others = [(token + n) % self.tokenizer.get_vocab_size() for n in range(1, most)]
        ranked = [(token, SURE), *((other, SURE - 5 - n) for n, other in enumerate(others))]
        tops = [{"rank": rank, "token_id": which, "token": self.tokenizer.decode([which]), "logprob": value} for rank, (which, value) in enumerate(ranked, 1)]
        return {"log_probs": [SURE], "top_logprobs": [tops]}

    def _last(self, tokens: list[int], reason: str, asked: int, said: int) -> dict[str, Any]:
        usage = {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}
        return {"token_ids": tokens, "index": 0, "finish_reason": reason, "completion_usage": usage}
