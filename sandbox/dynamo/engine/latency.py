"""When tokens come: time to first token and between tokens, as they depend on the prompt, the seed and how many requests run."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from .startup import TIMING


@dataclass
class Model:
    """Shared by all requests of a worker. Times are seconds on any steady clock that the caller keeps to."""

    times: dict[str, float] = field(default_factory=lambda: TIMING["answer"])
    running: int = 0
    prefill_free_at: float = 0.0  # prompts are read one after another

    def first_token(self, now: float, prompt_tokens: int) -> float:
        """How long from now until the first token; takes its place in the line of prompts."""
        start = max(now, self.prefill_free_at)
        self.prefill_free_at = start + prompt_tokens / self.times["prefill_tokens_per_second"]
        return self.prefill_free_at - now + self.times["first_token_ms"] / 1000

    def next_token(self, dice: random.Random) -> float:
        plain = self.times["token_ms"] + self.times["token_ms_per_user"] * max(0, self.running - 1)
        return plain / 1000 * (1 + self.times["jitter"] * (2 * dice.random() - 1))
