"""Authorization tokens, and the htpasswd file that follows them."""

from __future__ import annotations

import base64
import secrets
import threading
import time
from pathlib import Path

from ..config import SETTINGS

HOURS = 12
TOKENS: dict[str, tuple[float, str]] = {}  # password -> (expires, principal)


def issue(principal: str) -> tuple[str, float]:
    """A password of its own, good for 12 hours of real time whatever the factor."""
    password, expires = secrets.token_urlsafe(48), time.time() + HOURS * 3600
    TOKENS[password] = (expires, principal)
    write_htpasswd()
    return password, expires


def principal_of(header: str) -> str:
    """Whose token a Basic Authorization header carries, if it is still good, else nothing."""
    try:
        user, _, password = base64.b64decode(header.split(" ", 1)[1]).decode().partition(":")
    except (IndexError, ValueError):
        return ""
    expires, principal = TOKENS.get(password, (0.0, ""))
    return principal if user == "AWS" and expires > time.time() else ""


def good(header: str) -> bool:
    return bool(principal_of(header))


def write_htpasswd() -> None:
    """The newest good token as user AWS; a registry takes one password a user. Registry 2.8 reads the file again when it changes."""
    if not SETTINGS.registry_htpasswd:
        return
    live = [(expires, password) for password, (expires, _) in TOKENS.items() if expires > time.time()]
    path = Path(SETTINGS.registry_htpasswd)
    if not live:
        path.write_text("")
        return
    import crypt  # bcrypt of libxcrypt; gone in Python 3.13: use the bcrypt package there

    text = "AWS:" + crypt.crypt(max(live)[1], crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=16)).replace("$2b$", "$2y$", 1) + "\n"
    path.write_text(text)


def expire() -> None:
    """Drop tokens that are over, so that an htpasswd file follows."""
    over = [password for password, (expires, _) in TOKENS.items() if expires <= time.time()]
    for password in over:
        del TOKENS[password]
    if over:
        write_htpasswd()
    timer = threading.Timer(60, expire)
    timer.daemon = True
    timer.start()
