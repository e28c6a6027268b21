"""What the worker says: known answers, else running text; always the same for the same prompt."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

KNOWN = tomllib.loads(Path(__file__).with_name("answers.toml").read_text())
TEXT = (
    " A question like this one has no single answer, so here is what can be said with care. The parts of a large system are"
    " simple when they are seen alone, and what makes them hard is how they meet. When one part waits for another, the time of the"
    " whole is the time of the longest chain, and the rest can be done beside it. To know which chain that is, write down when each"
    " part began and when it was done. Then look again after every change, because the longest chain is seldom the one that was"
    " expected. It helps to keep the numbers, to say where they came from, and to throw away those that nobody can explain."
)
CODE = re.compile(r"The code number of this text is (\d+)\.")
THOUGHT = "The user wants a short answer. I check what is asked, work it out, and give the result.\n</think>\n\n"


def answer(prompt: str, wrong: bool, seen: str | None = None) -> str | None:
    """The known answer to what the prompt asks last; None if it asks something else. `seen`: the colour of its last picture."""
    places = [(prompt.rfind(k["asks"]), k["answer"]) for k in KNOWN["known"]]
    at, text = max(places)
    if at < 0:
        return None
    if wrong:
        return str(KNOWN["wrong"])
    code = CODE.search(prompt)
    return text.replace("{colour}", seen or "I see no picture.").replace("{code}", code[1] if code else "I see no code number.")


def thinks(prompt: str) -> bool:
    """The chat template opened a thought and left it to the model to close it."""
    return prompt.rstrip().endswith("<think>")


def seed(prompt: str, given: int | None) -> int:
    return int.from_bytes(hashlib.blake2b(f"{given}\0{prompt}".encode(), digest_size=8).digest(), "big")
