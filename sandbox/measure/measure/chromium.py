"""Debian's Chromium over the DevTools protocol, by a pipe: no port, no package."""

from __future__ import annotations

import base64
import itertools
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any


class Chromium:
    """One headless browser with one page. Use it as a context."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="chromium-")
        theirs_in, self.out = os.pipe()
        self.into, theirs_out = os.pipe()

        def pipes() -> None:  # Chromium reads commands from 3 and writes answers to 4
            a, b = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(a, 3)
            os.dup2(b, 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(
            ["chromium", *flags, f"--user-data-dir={self.folder.name}", "about:blank"],
            preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(theirs_in)
        os.close(theirs_out)
        self.numbers, self.rest, self.events, self.session = itertools.count(1), b"", [], None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        self.session = None
        try:
            self.call("Browser.close")
        except (RuntimeError, OSError):
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.folder.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to one command; events that come before it are kept."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params} | ({"sessionId": self.session} if self.session else {})
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            said = self.next()
            if said.get("id") == number:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']}")
                return said["result"]
            self.events.append(said)

    def next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            more = os.read(self.into, 1 << 16)
            if not more:
                raise RuntimeError("chromium has ended")
            self.rest += more
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def open(self, path: Path, width: int = 1280, height: int = 900, theme: str = "light") -> None:
        """Opens a file, and answers when it was loaded and painted."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.next())

    def run(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)["result"].get("value")

    def first_paint_ms(self) -> float:
        """Milliseconds from the navigation to the first paint with content."""
        for _ in range(200):
            paint = self.run("performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)[0]")
            if paint is not None:
                return paint
            time.sleep(0.02)
        raise RuntimeError("nothing was painted")

    def requests(self) -> list[str]:
        """Addresses that the page asked for."""
        return [event["params"]["request"]["url"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """What the browser had to say against the page."""
        said = [event["params"]["entry"]["text"] for event in self.events if event.get("method") == "Log.entryAdded"]
        return said + [event["params"]["exceptionDetails"]["text"] for event in self.events if event.get("method") == "Runtime.exceptionThrown"]

    def picture(self, path: Path) -> None:
        """Writes the page as a PNG."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))
