"""The page: one file that needs nothing else, is well-formed, and takes nothing of a log as its own."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.handmade import STEPS, series, short, sick, well
from springtide.diagnosis.reports import account as accounts
from springtide.diagnosis.reports.curve import HEIGHT, WIDTH, Domain, Mark, figure
from springtide.diagnosis.reports.destination import HTML
from springtide.diagnosis.reports.page import page

HOSTILE = "</title></style><script>alert(1)</script><img src='http://x/y' onerror=\"alert(1)\">&amp;\x00\x1b[2J"
DOMAIN = Domain(0, 390)


@pytest.fixture(autouse=True)
def no_rules(monkeypatch):
    monkeypatch.setattr(accounts, "rules", lambda: ())


def tree(text):
    return ElementTree.fromstring(text.removeprefix(HTML))


def drawn(figure_, kind):
    return [path.get("d") for path in tree(figure_).iter("path") if path.get("class") == kind]


def points(figure_):
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", drawn(figure_, "line")[0])]


@pytest.mark.parametrize("runs", [[sick()], [short()], [well()], [sick(), short(), well()]])
def test_it_is_well_formed_and_ids_are_unique(runs):
    root = tree(page(runs))
    ids = [each.get("id") for each in root.iter() if each.get("id")]
    assert len(ids) == len(set(ids)) == len(runs)
    links = [each.get("href") for each in root.iter("a")]
    assert links == ([f"#{id_}" for id_ in ids] if len(runs) > 1 else [])


@pytest.mark.parametrize(
    "run", [sick(), sick(source=HOSTILE, framework=HOSTILE, text=HOSTILE, name=f"reward/component/{HOSTILE}")]
)
def test_nothing_runs_and_nothing_is_loaded(run):
    text = page([run, run])
    root = tree(text)
    assert {each.tag for each in root.iter()} & {"script", "link", "img", "iframe", "object", "embed", "base"} == set()
    attributes = {name for each in root.iter() for name in each.attrib}
    assert not any(name.startswith("on") or name in ("src", "srcset", "action") for name in attributes)
    assert "url(" not in text
    assert "@import" not in text
    policy = next(each for each in root.iter("meta") if each.get("http-equiv") == "Content-Security-Policy")
    assert policy.get("content").startswith("default-src 'none'")


def test_log_text_is_shown_as_it_is():
    root = tree(page([sick(source=HOSTILE, framework=HOSTILE, text=HOSTILE)]))
    assert "<script>alert(1)</script>" in "".join(root.find("body").itertext())
    assert "\\x1b[2J" in "".join(root.find("body").itertext())


@given(text=st.text())
def test_any_text_leaves_it_well_formed(text):
    accounts_rules, accounts.rules = accounts.rules, lambda: ()
    try:
        tree(page([sick(source=text, text=text, name=f"reward/component/{text}")]))
    finally:
        accounts.rules = accounts_rules


def test_curves_have_the_onset_the_mover_and_the_way_back_at_their_steps():
    root = tree(page([sick()]))
    curves = {each.find(".//strong").text: each for each in root.iter("figure") if each.get("class") == "curve"}
    assert list(curves)[:3] == ["reward/mean", "train/entropy", "completion/truncated"]
    marks = {path.get("class"): path.get("d") for path in curves["completion/truncated"].iter("path")}
    assert marks["onset"].startswith(f"M{WIDTH * 220 / 390:.1f} 0V")
    assert marks["mover"].startswith(f"M{WIDTH * 180 / 390:.1f} 0V")
    assert marks["rollback"].startswith(f"M{WIDTH * 100 / 390:.1f} 0V")
    legend = "".join(next(each for each in root.iter("ul") if each.get("class") == "legend").itertext())
    assert "since step 220" in legend
    assert "train/entropy moved first, at step 180" in legend


def test_both_colour_schemes_and_the_width_of_the_screen_are_answered():
    text = page([sick()])
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in text


def test_a_line_is_in_its_frame_and_breaks_where_a_value_is_not_finite():
    values = np.linspace(0, 1, len(STEPS))
    values[[3, 4, 6]] = [np.nan, np.inf, np.nan]
    told = figure(series("reward/mean", values), DOMAIN, [])
    assert drawn(told, "line")[0].count("M") == 3
    assert "h0" in drawn(told, "line")[0]
    assert drawn(told, "lost")[0].count("M") == 3
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points(told))


@pytest.mark.parametrize(
    "values", [[np.nan], [0.0], [1e-300, 1e300], [-1.7e308, 1.7e308], [np.inf, 5.0], [0.0, 0.0, 1e6]]
)
def test_values_of_any_size_have_a_curve(values):
    told = figure(series("reward/mean", values, steps=range(len(values))), Domain(0, len(values) - 1), [])
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points(told))


def test_a_long_run_is_thinned_but_keeps_its_spike():
    values = np.ones(100_000)
    values[77_777] = 9.0
    told = figure(series("train/grad_norm", values, steps=np.arange(100_000)), Domain(0, 99_999), [])
    assert len(points(told)) < 1000
    assert min(y for _, y in points(told)) < HEIGHT / 4


def test_a_mark_outside_of_the_run_is_not_drawn():
    told = figure(series("reward/mean", np.ones(len(STEPS))), DOMAIN, [Mark("onset", 5000, "later")])
    assert drawn(told, "onset") == []


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1])
def test_colours_can_be_read_in_light_and_in_dark(scheme):
    """By the contrast of 4.5 that WCAG 2 asks of text."""
    names = dict(re.findall(r"--(\w+): (#\w{6})", page([sick()]).split("@media")[scheme]))
    assert len(names) == 10
    for ground in ("paper", "card"):
        for ink in names.keys() - {"paper", "card", "edge"}:
            bright, dark = sorted((luminance(names[ground]), luminance(names[ink])), reverse=True)
            assert (bright + 0.05) / (dark + 0.05) >= 4.5, (ground, ink)
