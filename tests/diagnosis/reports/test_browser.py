"""The page in a real browser: it fits a phone and uses a wide screen. Skipped where no browser is installed."""

import html
import json
import re
import shutil
import subprocess

import pytest

from diagnosis.handmade import short, sick, well
from springtide.diagnosis.reports import account as accounts
from springtide.diagnosis.reports.page import page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

# The page stands in a frame of the width asked for; a script beside it measures it, as the page itself may have none.
HARNESS = """<!DOCTYPE html><body style="margin:0">
<iframe style="width:{width}px;height:800px;border:0" srcdoc="{page}"></iframe><pre id="measured"></pre><script>
window.onload = () => {{
  const inner = document.querySelector("iframe").contentDocument;
  const all = (what) => [...inner.querySelectorAll(what)];
  const box = (each) => each.getBoundingClientRect();
  document.getElementById("measured").textContent = JSON.stringify({{
    needed: inner.documentElement.scrollWidth,
    verdict: box(inner.querySelector(".verdict")).bottom,
    columns: new Set(all("figure.curve").map((each) => Math.round(box(each).left))).size,
    widest: Math.max(...all("figure.curve").map((each) => box(each).right)),
    heights: all("figure.curve svg").map((each) => box(each).height),
    smallest: Math.min(...all("body *").map((each) => parseFloat(inner.defaultView.getComputedStyle(each).fontSize))),
    flags: all(".flag").map((each) => [box(each).left, box(each).right]),
  }});
}};
</script></body>"""


@pytest.fixture(autouse=True)
def no_rules(monkeypatch):
    monkeypatch.setattr(accounts, "rules", lambda: ())


def browse(folder, *arguments):
    command = [BROWSER, *OPTIONS, f"--user-data-dir={folder / 'profile'}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def measured(folder, runs, width):
    file = folder / "harness.html"
    file.write_text(HARNESS.format(width=width, page=html.escape(page(runs))), encoding="utf-8")
    shown = browse(folder, f"--window-size={width + 100},1000", "--dump-dom", file.as_uri())
    return json.loads(html.unescape(re.search(r'<pre id="measured">(.*?)</pre>', shown, re.S)[1]))


@pytest.mark.parametrize("runs", [[sick()], [sick(source="/a/" + "x" * 300), short(), well()]])
@pytest.mark.parametrize("width", [360, 1600])
def test_nothing_is_wider_than_the_screen_and_all_can_be_read(tmp_path, runs, width):
    seen = measured(tmp_path, runs, width)
    assert seen["needed"] <= width
    assert seen["widest"] <= width
    assert min(seen["heights"]) >= 100
    assert seen["smallest"] >= 11
    assert all(left >= 0 and right <= width for left, right in seen["flags"])


def test_a_phone_has_one_column_of_curves_and_a_wide_screen_several(tmp_path):
    assert measured(tmp_path, [sick()], 360)["columns"] == 1
    assert measured(tmp_path, [sick()], 1600)["columns"] >= 3


def test_the_verdict_is_seen_without_scrolling(tmp_path):
    assert measured(tmp_path, [sick()], 360)["verdict"] < 640


@pytest.mark.parametrize("width", [360, 1600])
def test_a_screenshot_shows_curves_in_their_colours(tmp_path, width):
    images = pytest.importorskip("PIL.Image")
    file, shot = tmp_path / "report.html", tmp_path / "shot.png"
    file.write_text(page([sick()]), encoding="utf-8")
    browse(tmp_path, f"--window-size={width},1400", f"--screenshot={shot}", file.as_uri())
    colours = {colour for _, colour in images.open(shot).convert("RGB").getcolors(1 << 24)}
    assert {(0x1F, 0x5F, 0xD0), (0xB3, 0x26, 0x1E)} <= colours or {(0x7E, 0xAA, 0xFF), (0xFF, 0x8A, 0x80)} <= colours
