"""`nemo compare` and `nemo report` by the real binary over recorded sweeps; the page is read back in Chromium. Needs no world."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BINARY, ROOT

sys.path.insert(0, str(ROOT / "sandbox" / "measure"))
from measure.chromium import Chromium  # noqa: E402

SWEEPS = ROOT / "tests" / "fixtures" / "aiperf" / "sweeps"


def nemo(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BINARY, *args], cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    args = ["--out", "report.html", "--out", "comment.md", "--out", "levels.csv", "--ttft", "p95=200ms", "--itl", "p95=20ms", "--gpus", "8,16"]
    done = nemo(folder, "report", str(SWEEPS / "agg-0.9.0"), str(SWEEPS / "disagg-0.9.0"), *args)
    assert done.returncode == 0, done.stderr
    assert (folder / "levels.csv").read_text().count("\n") == 13
    assert "within the budgets up to concurrency 16" in (folder / "comment.md").read_text()
    return folder / "report.html"


def test_a_gate_ends_with_16_and_a_different_load_with_2(tmp_path: Path) -> None:
    better, worse, other = (str(SWEEPS / name) for name in ("disagg-0.9.0", "agg-0.9.0", "agg-0.13.0"))
    done = nemo(tmp_path, "compare", better, worse, "--fail-if", "itl.p95 > +5%", "--output", "json")
    answer = json.loads(done.stdout.splitlines()[0])
    assert done.returncode == 16 and answer["kind"] == "compare" and {held["outcome"] for held in answer["gates"]} == {"failed"}, done.stdout[-500:]
    assert nemo(tmp_path, "compare", worse, better, "--fail-if", "itl.p95>+5%").returncode == 0
    refused = nemo(tmp_path, "compare", worse, other)
    assert refused.returncode == 2 and "--across aiperf" in refused.stderr, refused.stderr


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_stands_alone_in_both_themes_and_on_a_phone(browser: Chromium, page: Path, width: int, theme: str) -> None:
    browser.open(page, width=width, theme=theme)
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.complaints() == []
    assert browser.run("document.documentElement.scrollWidth") == width, "tables scroll by themselves"
    # Every text stands out from its ground as WCAG AA asks, also in the other theme.
    dim = browser.run(
        """(() => {
          const light = color => { const [r, g, b] = color.match(/[\\d.]+/g).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b };
          const ground = node => { for (; node; node = node.parentElement) { const c = getComputedStyle(node).backgroundColor; if (c && !c.endsWith(', 0)')) return c } return 'rgb(0, 0, 0)' };
          return [...document.querySelectorAll('h1, h2, h3, p, li, a:not(.skip), th, td, dt, dd, summary, caption, svg.chart text')].filter(node => {
            const style = getComputedStyle(node), [a, b] = [light(node instanceof SVGElement ? style.fill : style.color), light(ground(node))].sort((x, y) => y - x);
            return (a + 0.05) / (b + 0.05) < 4.5 }).map(node => node.textContent.slice(0, 40)) })()"""
    )
    assert dim == []


def test_what_the_charts_show_can_be_read_reached_and_taken_along(browser: Chromium, page: Path) -> None:
    browser.open(page)
    tree = browser.call("Accessibility.getFullAXTree")["nodes"]
    named = {(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if not node.get("ignored")}
    charts = {name for role, name in named if role in ("image", "img")}
    assert len(charts) == 4 and any(name.startswith("Time to first token") for name in charts), charts
    assert ("main", "") in named and ("region", "agg-0.9.0: every level") in named, sorted(named)[:40]
    # By the keyboard alone: the first Tab skips to the tables, each table behind a chart opens.
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert browser.run("document.activeElement.className") == "skip"
    assert browser.run("document.querySelectorAll('details').length") == 4
    browser.run("document.querySelector('summary').focus()")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    assert browser.run("document.querySelector('details').open") is True
    # The requests, out of the link.
    link = browser.run("document.querySelector('a[download]').href")
    rows = gzip.decompress(base64.b64decode(link.removeprefix("data:application/gzip;base64,"))).decode().splitlines()
    assert rows[0] == "concurrency,start_ms,ttft_ms,itl_ms,output_tokens" and len(rows) == 409
    # On paper the tables behind the charts are open and the links are gone.
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.run("[...document.querySelectorAll('figure table')].every(table => table.getBoundingClientRect().height > 20)") is True
    assert browser.run("getComputedStyle(document.querySelector('.noprint')).display") == "none"
    browser.call("Emulation.setEmulatedMedia", media="")
