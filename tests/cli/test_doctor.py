"""`springtide doctor`: what a user and a machine are told, and with which exit code."""

import errno
import json
from pathlib import Path

import pytest

from diagnosis.handmade import short, sick, well
from springtide.core.errors import UsageError
from springtide.diagnosis import examine
from springtide.diagnosis.reports.destination import HTML, MARKDOWN

RUNS = {"sick": [sick()], "well": [well()], "short": [short()], "restarts": [short(), well()], "nothing": []}


@pytest.fixture
def logs(monkeypatch):
    """Paths by the name of what they hold."""

    def read(path):
        if path.name not in RUNS:
            raise UsageError(f"There is nothing at {path}: give a log file.")
        return [run.frame for run in RUNS[path.name]]

    found = {id(run.frame): run.diagnosis for runs in RUNS.values() for run in runs}
    monkeypatch.setattr(examine, "read", read)
    monkeypatch.setattr(examine, "diagnose", lambda frame: found[id(frame)])


@pytest.mark.parametrize(
    ("paths", "code"),
    [
        (["well"], 0),
        (["sick"], 1),
        (["short"], 3),
        (["well", "short"], 3),
        (["restarts"], 3),
        (["short", "sick"], 1),
        (["nothing"], 2),
        (["missing"], 2),
        (["well", "missing"], 2),
        (["sick", "missing"], 1),
    ],
)
def test_the_exit_code_is_that_of_the_worst(springtide, logs, paths, code):
    assert springtide("doctor", *paths).exit_code == code


def test_a_path_that_holds_no_log_is_one_sentence(springtide, logs):
    result = springtide("doctor", "nothing")
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "nothing holds no training log" in result.stderr


def test_one_path_without_a_log_does_not_keep_others_from_being_judged(springtide, logs):
    result = springtide("doctor", "sick", "nothing")
    assert "completions run into their limit" in result.stdout
    assert "holds no training log" in result.stderr


def test_what_two_paths_have_in_common_is_judged_once(springtide, logs):
    told = json.loads(springtide("doctor", "well", "sick", "well", "--json").stdout)
    assert [run["verdict"] for run in told["runs"]] == ["OK", "SICK"]


def test_with_json_only_the_object_is_on_standard_output(springtide, logs):
    result = springtide("doctor", "sick", "well", "--json")
    told = json.loads(result.stdout)
    assert [run["verdict"] for run in told["runs"]] == ["SICK", "OK"]
    assert "Most likely" in result.stderr


@pytest.mark.parametrize(("option", "begins"), [("--html", HTML), ("--markdown", f"{MARKDOWN}## ")])
def test_a_report_is_written_where_the_user_says(springtide, logs, option, begins):
    result = springtide("doctor", "sick", option, "report")
    assert Path("report").read_text(encoding="utf-8").startswith(begins)
    assert "Wrote report" in result.stderr
    assert [path.name for path in Path().iterdir()] == ["report"]


@pytest.mark.parametrize("option", ["--html", "--markdown"])
@pytest.mark.parametrize("to", ["folder/log", "hard", "soft", "stranger"])
def test_a_report_replaces_nothing_but_a_report(springtide, logs, option, to):
    Path("folder").mkdir()
    log = Path("folder/log")
    log.write_text("log")
    Path("hard").hardlink_to(log)
    Path("soft").symlink_to(log)
    Path("stranger").write_text("notes")
    before = Path(to).read_text()
    result = springtide("doctor", "folder", option, to)
    assert result.exit_code == 2
    assert f"{option} {to}: this file is there and is no such report; name another one" in result.stderr
    assert Path(to).read_text() == before
    assert log.read_text() == "log"


@pytest.mark.parametrize("option", ["--html", "--markdown"])
def test_a_report_replaces_an_earlier_one(springtide, logs, option):
    springtide("doctor", "sick", option, "report")
    earlier = Path("report").read_text()
    springtide("doctor", "well", option, "report")
    assert Path("report").read_text() != earlier


def test_a_report_that_cannot_be_written_loses_no_diagnosis(springtide, logs, monkeypatch):
    def full(path, *_, **__):
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(Path, "write_text", full)
    result = springtide("doctor", "well", "--html", "report")
    assert result.exit_code == 2
    assert "well" in result.stdout
    assert "report could not be written (Input/output error): name another file." in result.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "Name a log"),
        (("--json",), "Name a log"),
        (("sick", "--html", "no/such/report.html"), "there is no folder no/such"),
        (("sick", "--markdown", "."), "this is a folder"),
        (("sick", "--only", "S999"), "There is no symptom 'S999'"),
        (("explain", "lenght-runaway"), "S33 length-runaway"),
    ],
)
def test_mistakes_are_one_sentence(springtide, logs, arguments, problem):
    result = springtide("doctor", *arguments)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert "Traceback" not in result.stderr


def test_one_symptom_alone_decides_where_it_is_asked_for(springtide, logs):
    result = springtide("doctor", "sick", "--only", "s08", "--json")
    assert result.exit_code == 0
    run = json.loads(result.stdout)["runs"][0]
    assert [(each["id"], each["verdict"]) for each in run["symptoms"]] == [("S08", "WATCH")]
    assert (run["verdict"], run["earliest_mover"], run["rollback_step"]) == ("WATCH", None, None)


def test_a_symptom_is_explained_by_id_or_name(springtide):
    by_id, by_name = springtide("doctor", "explain", "s33"), springtide("doctor", "explain", "length-runaway")
    assert by_id.exit_code == 0
    assert by_id.stdout == by_name.stdout
    assert by_id.stdout.startswith("# S33 ")


def test_without_a_symptom_all_are_listed(springtide):
    result = springtide("doctor", "explain")
    assert "| S33 |" in result.stdout


def test_help_shows_the_command_as_it_is_typed(springtide):
    result = springtide("doctor", "--help")
    assert "springtide doctor [OPTIONS] [PATH]..." in result.stdout
    assert "springtide doctor explain S33" in result.stdout
    assert "examine" not in result.stdout
    assert "springtide doctor explain" in springtide("doctor", "explain", "--help").stdout
