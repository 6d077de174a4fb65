"""A colleague who was not there understands the report: verdict, since when, why, what to check, what to change."""

import json

import numpy as np
import pytest
from rich.console import Console

from diagnosis.handmade import STEPS, series, short, sick, torn, well
from springtide.diagnosis.reports import account as accounts
from springtide.diagnosis.reports.account import Examined, account, overview, worst
from springtide.diagnosis.reports.document import encode
from springtide.diagnosis.reports.markdown import markdown
from springtide.diagnosis.reports.page import page
from springtide.diagnosis.reports.terminal import curve, print_runs
from springtide.diagnosis.rule import Rule
from springtide.diagnosis.verdict import Verdict

HOSTILE = "\x1b[2J[bold]<script>alert('x')</script>|`a`\n# h ![i](http://x/y)"


@pytest.fixture(autouse=True)
def one_rule(monkeypatch):
    rule = Rule.model_construct(id="S23", name="kl", title="KL", needs=("train/reference_kl",))
    monkeypatch.setattr(accounts, "rules", lambda: (rule,))


def terminal(runs, **options):
    console = Console(width=120, force_terminal=False, record=True)
    with console.capture() as captured:
        print_runs(console, runs, **options)
    return captured.get()


@pytest.mark.parametrize("view", [terminal, markdown, page])
def test_every_view_says_what_a_colleague_needs_in_that_order(view):
    text = view([sick()]).replace("\\_", "_").partition("<body>")
    told = text[2] or text[0]
    needed = [
        "SICK",
        "completions run into their limit (S33), since step 220",
        "train/entropy at step 180 (S21)",
        "step 100, the last checkpoint before train/entropy moved",
        "the learning rate is too high",
        "entropy rose before lengths did",
        "run 50 steps from the checkpoint at half the rate",
        "Change (TRL)",
        "learning_rate = 5e-7",
        "no end-of-text token is learnt",
        "line 41: half a line",
        "beta = 0.001",
        "S23",
        "step 220, group 7, reward 0.5, rollouts/220.jsonl:3: no end",
    ]
    ordered = needed[:9] if view is terminal else needed[:3]
    places = [told.index(each) for each in ordered]
    assert places == sorted(places)
    assert [each for each in needed if each not in told] == []


@pytest.mark.parametrize("view", [terminal, markdown, page])
def test_several_runs_are_a_table_with_the_worst_named(view):
    told = view([well(), sick(), short()])
    assert told.index("INSUFFICIENT") < told.index("Moved first")
    assert "trainer" in told
    assert "too high" in told


def test_runs_of_one_folder_are_named_within_it_and_counted():
    runs = [sick(source="/data/a/x.log"), sick(source="/data/b/x.log#2")]
    said, names = overview([account(each) for each in runs])
    assert (said, names) == ("2 runs in /data: 2 SICK", ["a/x.log", "b/x.log#2"])
    assert overview([account(each) for each in (sick(source="/data/x"), well())])[1] == ["/data/x", "well"]


def test_many_sick_runs_are_a_table_unless_all_is_asked_for():
    runs = [sick(source=f"run-{number}") for number in range(5)]
    assert "Moved first" not in terminal(runs)
    assert "name it alone" in terminal(runs)
    assert terminal(runs, verbose=True).count("Moved first") == 5


def test_how_far_a_rule_can_be_trusted_stands_beside_its_finding():
    for told in (terminal([sick()]), markdown([sick()]), page([sick()])):
        assert "How far to trust this rule: found in 3 of 3, wrong on 0 of 20" in told
    for told in (terminal([sick()], verbose=True), markdown([sick()]), page([sick()])):
        assert told.count("This rule has not been run on data.") == 1


def test_what_the_log_says_of_settings_is_there_for_who_asks():
    assert "learning_rate = 1e-06" in terminal([sick()], verbose=True)
    assert "custom/metric" in terminal([sick()], verbose=True)
    assert "learning_rate = 1e-06" in page([sick()])


def test_when_a_symptom_could_be_told_is_said_where_it_was_later_than_its_onset():
    assert "It could be told from step 230 on." in page([sick()])
    assert "It could be told from step 230 on." in markdown([sick()])
    assert page([sick()]).count("It could be told") == 1


def test_a_run_that_crashed_before_it_logged_says_so_first():
    from dataclasses import replace

    examined = short()
    told = account(Examined(replace(examined.frame, error="CUDA out of memory"), examined.diagnosis))
    assert told.headline == "The run ended before there was enough to judge: CUDA out of memory"


def test_what_cannot_be_judged_says_why_and_never_that_all_is_fine():
    told = terminal([short()])
    assert "INSUFFICIENT  Too few values to say anything: 2 values, 6 are needed" in told
    assert "No symptom" not in told


@pytest.mark.parametrize("view", [terminal, markdown, page])
def test_a_symptom_of_a_run_that_cannot_be_judged_is_no_verdict_on_it(view):
    told = view([torn()])
    assert told.index("INSUFFICIENT") < told.index("the log holds several runs")
    assert "Most likely" not in told


def test_what_is_only_watched_beside_a_sick_finding_is_one_line_until_asked_for():
    assert "WATCH  all-correct groups rise (S08), since step 50" in terminal([sick()])
    assert "reward/mean is 0.7" not in terminal([sick()])
    assert "reward/mean is 0.7" in terminal([sick()], verbose=True)


def test_what_is_not_judged_is_worse_than_what_is_fine():
    assert worst([Verdict.OK, Verdict.INSUFFICIENT]) is Verdict.INSUFFICIENT
    assert worst([Verdict.INSUFFICIENT, Verdict.WATCH, Verdict.OK]) is Verdict.WATCH
    assert worst([Verdict.WATCH, Verdict.SICK]) is Verdict.SICK
    assert worst([]) is Verdict.UNAVAILABLE


def test_without_a_checkpoint_before_the_first_mover_no_step_is_promised():
    from msgspec.structs import replace

    examined = sick()
    told = account(Examined(examined.frame, replace(examined.diagnosis, rollback_step=None)))
    assert told.rollback == "no checkpoint before step 180 is known; the first is of step 100"


def test_a_cause_that_is_hardly_less_likely_is_said_to_be():
    from msgspec.structs import replace

    examined = sick()
    first, second = examined.diagnosis.causes
    close = replace(examined.diagnosis, causes=(first, replace(second, score=first.score - 0.1)))
    told = terminal([Examined(examined.frame, close)])
    assert "no end-of-text token is learnt (about as likely)" in told
    assert "about as likely" not in terminal([examined])


@pytest.mark.parametrize("view", [markdown, page])
def test_of_many_causes_the_likely_ones_are_told_and_the_others_named(view):
    from msgspec.structs import replace

    examined = sick()
    first = examined.diagnosis.causes[0]
    many = tuple(replace(first, title=f"cause-{n}", check=f"check-{n}", score=-float(n)) for n in range(9))
    told = view([Examined(examined.frame, replace(examined.diagnosis, causes=many))])
    assert [n for n in range(9) if f"cause-{n}" in told] == list(range(9))
    assert [n for n in range(9) if f"check-{n}" in told] == list(range(5))


def test_a_terminal_is_given_no_orders_and_no_markup_by_a_log():
    hostile = sick(source=HOSTILE, framework=HOSTILE, text=HOSTILE, name=f"reward/component/{HOSTILE}")
    told = terminal([hostile, hostile], verbose=True)
    assert "\x1b" not in told
    assert "[bold]" in told
    assert "\\x1b[2J" in told


def test_markdown_takes_nothing_of_a_log_as_its_own():
    told = markdown([sick(source=HOSTILE, framework=HOSTILE, text=HOSTILE)])
    assert "<script>" not in told
    assert "![i]" not in told
    assert "\n# h" not in told
    assert "\\`a\\`" in told


def test_the_object_for_machines_has_what_is_promised():
    run = json.loads(encode([sick(), well()]))["runs"][0]
    assert {key: run[key] for key in ("source", "framework", "steps", "verdict", "rollback_step")} == {
        "source": "outputs/trainer_state.json",
        "framework": "trl",
        "steps": 390,
        "verdict": "SICK",
        "rollback_step": 100,
    }
    symptom = next(each for each in run["symptoms"] if each["id"] == "S33")
    assert (symptom["verdict"], symptom["onset_step"]) == ("SICK", 220)
    assert symptom["causes"] == ["learning_rate_high", "no_stop"]
    assert symptom["evidence"][0]["values"] == [0.87, 0.87]
    assert run["earliest_mover"] == {"metric": "train/entropy", "step": 180, "symptom": "S21"}
    assert run["unavailable"] == [{"metric": "train/reference_kl", "reason": "beta is 0", "turn_on": "beta = 0.001"}]
    assert run["notes"] == ["line 41: half a line"]


def test_the_object_for_machines_survives_what_is_no_text():
    assert json.loads(encode([sick(source="a\udcff", text="b\ud800")]))["runs"][0]["source"] == "a\\udcff"


def test_a_curve_on_a_terminal_shows_its_ends_and_what_is_not_finite():
    assert curve(series("x", [1.0, 2.0, 3.0], steps=[1, 2, 3])) == "1 ▁▅█ 3"
    assert curve(series("x", [1.0, np.nan, 3.0], steps=[1, 2, 3])) == "1 ▁!█ 3"
    assert curve(series("x", [np.nan, np.inf], steps=[1, 2])) == "not finite"
    assert curve(series("x", np.full(len(STEPS), 5.0))) == f"5 {'▁' * 24} 5"
    assert curve(series("x", [-1.7e308, 1.7e308], steps=[1, 2])).count("█") == 1
