"""Recorded traces and the user's own files on the command line."""

import json

import pytest

from simulation.traces import samples

QUICK = ("--steps", "1", "--warm-steps", "0")


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "sessions.csv"
    path.write_text(samples.TRACELAB)
    return path.name


def test_a_trace_is_simulated_and_its_assumptions_are_told(springtide, trace):
    result = springtide("simulate", trace, *QUICK, "--group-size", "2", "--json")
    assert result.exit_code == 0
    assert "sessions.csv on h100-7b" in result.stdout
    told = json.loads(result.stdout.splitlines()[-1])
    assert told["workload"] == "sessions.csv"
    assert "The format has no groups: each 2 episodes in order are one." in told["assumptions"]
    assert all(f"- {sentence}" in result.stderr for sentence in told["assumptions"])


def test_a_plan_takes_a_trace_too(springtide, trace):
    result = springtide("plan", trace, "--target", "20", *QUICK, "--groups-per-step", "2", "--json")
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert told["groups_per_step"] == 2
    assert told["assumptions"]


def test_a_preset_assumes_nothing_that_has_to_be_told(springtide):
    result = springtide("simulate", "shop", *QUICK, "--json")
    assert json.loads(result.stdout.splitlines()[-1])["assumptions"] == []
    assert result.stderr == ""


def test_a_trace_is_fitted_changed_and_simulated(springtide, trace, tmp_path):
    result = springtide("simulate", trace, "--fit", "mine.toml", "--json")
    assert result.exit_code == 0
    told = json.loads(result.stdout.splitlines()[-1])
    assert told["file"] == "mine.toml"
    file = tmp_path / "mine.toml"
    file.write_text(file.read_text().replace("latency_factor = 1.0", "latency_factor = 9.0"))
    assert springtide("simulate", "mine.toml", *QUICK, "--bands").exit_code == 0
    assert springtide("plan", "mine.toml", "--target", "20", *QUICK).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("nothing.csv",), "There is no workload 'nothing.csv'; there are: gui"),
        (("x" * 5000,), "Nor is it a file, or a run."),
        (("bad.toml",), "bad.toml: context is missing"),
        (("sessions.csv", "--cluster", "bad.toml"), "bad.toml: kv_tokens is missing"),
        (("bad.csv",), 'bad.csv, line 2: input_len = "x" is no number'),
        (("other.csv",), "other.csv is no trace that can be read"),
        (("sessions.csv", "--context", "10"), "no episode has a turn within 10 tokens; give a larger --context"),
        (("sessions.csv", "--fit", "bad.toml"), "--fit bad.toml: there is such a file; name another"),
        (("sessions.csv", "--fit", "no/mine.toml"), "--fit no/mine.toml: there is no folder no"),
        (("tau", "--fit", "mine.toml"), "'tau' was not recorded"),
    ],
)
def test_mistakes_are_one_sentence_each(springtide, trace, tmp_path, arguments, problem):
    (tmp_path / "bad.toml").write_text('name = "bad"\n')
    (tmp_path / "bad.csv").write_text(samples.TRACELAB.replace("0,100,500", "0,100,x"))
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    result = springtide("simulate", *arguments)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert "Traceback" not in result.stderr


def test_help_shows_how_to_play_a_trace(springtide):
    text = springtide("simulate", "--help").stdout
    assert all(word in text for word in ("--fit", "--context", "coding_trace.csv"))
