"""The other ways into the doctor: before a run, while it trains, and by its completions."""

import json

import pytest

from diagnosis.completions.runs import healthy, run, write_verl
from diagnosis.handmade import short, sick, well
from springtide.cli import doctor_follow
from springtide.diagnosis import examine
from springtide.diagnosis.follow import watch
from springtide.telemetry.run_folder import RunFolder
from springtide.telemetry.status import StatusBoard

CONFIG = {
    "num_generations": 8,
    "gradient_accumulation_steps": 32,
    "eval_strategy": "steps",
    "log_completions": True,
    "max_steps": 100,
    "save_steps": 5,
}


def test_preflight_of_a_recipe(springtide):
    result = springtide("doctor", "preflight", "quickstart", "--pass-rate", "0.4:0.3")
    assert result.exit_code == 0
    assert "Groups without a signal: 29%" in result.stdout
    assert "memory on each device, an estimate" in result.stdout


def test_preflight_takes_overrides(springtide):
    result = springtide("doctor", "preflight", "quickstart", "--pass-rate", "0.4", "--set", "scheduling.group_size=2")
    assert "Groups without a signal: 52%" in result.stdout


def test_preflight_of_a_configuration_that_cannot_go_well(springtide, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"num_generations": 6}))
    result = springtide("doctor", "preflight", "config.json", "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout.splitlines()[-1])
    assert document["verdict"] == "SICK"
    worst = document["findings"][0]
    assert (worst["field"], worst["value"]) == ("num_generations", "6")
    assert worst["remedy"].startswith("gradient_accumulation_steps = ")
    mended = springtide("doctor", "preflight", "config.json", "--set", worst["remedy"].replace(" ", ""))
    assert mended.exit_code == 0


def test_preflight_with_what_the_base_model_does(springtide, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "rates.csv").write_text("k,n,tokens\n" + "0,8,900\n" * 60)
    result = springtide("doctor", "preflight", "config.json", "--base", "rates.csv")
    assert result.exit_code == 1
    assert "of groups will carry no signal, most of them all wrong" in result.stdout
    assert "100% of the base model's completions will be cut off" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.json"], "no recipe 'nowhere.json'"),
        (["quickstart", "--pass-rate", "2"], "--pass-rate 2"),
        (["quickstart", "--pass-rate", "0.2", "--base", "x"], "give one of them"),
        (["quickstart", "--base", "x"], "no such file"),
        (["quickstart", "--set", "scheduling.group_siz=4"], "scheduling.group_size"),
    ],
)
def test_mistakes_of_preflight_are_one_sentence(springtide, arguments, said):
    result = springtide("doctor", "preflight", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


def test_completions_with_rows_to_read(springtide, tmp_path):
    def collapses(rng, share, group, member):
        looping = share > 0.6
        text = "[bold]no[/bold] \x1b[2J" * 200 if looping else healthy(rng, share, group, member)["text"]
        return {"text": text, "reward": float(not looping and rng.random() < 0.5)}

    write_verl(tmp_path / "rollouts", run(collapses))
    result = springtide("doctor", "completions", "rollouts")
    assert result.exit_code == 1
    assert "SICK        Completions loop since step 6  S36" in result.stdout
    assert "[bold]no[/bold]" in result.stdout
    assert "\x1b[2J" not in result.stdout
    document = json.loads(springtide("doctor", "completions", "rollouts", "--json").stdout.splitlines()[-1])
    assert document["samples"] == 320
    assert next(each for each in document["symptoms"] if each["id"] == "S36")["rows"][0]["place"] == "8.jsonl:1"


def test_healthy_completions_are_fine_and_none_are_a_mistake(springtide, tmp_path):
    write_verl(tmp_path / "rollouts", run(healthy))
    assert springtide("doctor", "completions", "rollouts").exit_code == 0
    (tmp_path / "empty").mkdir()
    result = springtide("doctor", "completions", "empty")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "log_completions" in result.stderr


class Clock:
    """A virtual one; `then` is done at the first sleep."""

    then = None

    def __init__(self):
        self.time = 0.0

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds
        if Clock.then is not None:
            happens, Clock.then = Clock.then, None
            happens()


@pytest.fixture
def followed(monkeypatch, tmp_path):
    """A log that is healthy at first and sick after the first sleep."""
    runs = [well(), sick()]
    monkeypatch.setattr(watch, "WallClock", Clock)
    log = tmp_path / "train.log"
    log.write_text("step 1\n")
    monkeypatch.setattr(examine, "read", lambda path: [runs[0].frame])
    monkeypatch.setattr(examine, "diagnose", lambda frame: runs[0].diagnosis)

    def grow():
        runs.pop(0)
        log.write_text("step 1\nstep 2\n")

    monkeypatch.setattr(Clock, "then", grow)
    return log


def test_follow_tells_what_comes_and_keeps_prometheus_posted(springtide, followed, tmp_path):
    result = springtide("doctor", "train.log", "--follow", "--idle", "60", "--prometheus", "doctor.prom")
    assert result.exit_code == 1
    assert "OK" in result.stdout
    worst = next(each for each in sick().diagnosis.symptoms if each.verdict == "SICK")
    assert f"SICK {worst.id} {worst.title}" in result.stdout
    assert "springtide_doctor_verdict{" in (tmp_path / "doctor.prom").read_text()


def test_follow_waits_for_a_log_and_has_no_verdict_without_one(springtide, monkeypatch):
    monkeypatch.setattr(watch, "WallClock", Clock)
    result = springtide("doctor", "nowhere.log", "--follow", "--idle", "60")
    assert result.exit_code == 2
    assert "There is nothing at nowhere.log" in result.stderr


def test_follow_ends_with_a_run_of_ours(springtide, monkeypatch):
    folder = RunFolder.create(name="demo", recipe_text="")
    StatusBoard(folder.status, run=folder.id, steps=2).close()
    monkeypatch.setattr(watch, "WallClock", Clock)
    monkeypatch.setattr(examine, "read", lambda path: [short().frame])
    monkeypatch.setattr(examine, "diagnose", lambda frame: short().diagnosis)
    assert springtide("doctor", "--follow", str(folder.path)).exit_code == 3
    assert doctor_follow.run_ended(folder.path)
    with folder.lock():
        assert not doctor_follow.run_ended(folder.path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--stop-run"], "add --pid PID"),
        (["--pid", "5"], "--stop-run"),
        (["--webhook", "file:///etc/passwd"], "http://"),
        (["--prometheus", "no/such/folder/x.prom"], "make it first"),
    ],
)
def test_mistakes_of_follow_are_one_sentence(springtide, tmp_path, arguments, said):
    (tmp_path / "train.log").write_text("")
    result = springtide("doctor", "train.log", "--follow", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_help_of_each_way(springtide):
    assert "--webhook" in springtide("doctor", "--follow", "--help").stdout
    assert "--pass-rate" in springtide("doctor", "preflight", "--help").stdout
    assert "--follow" in springtide("doctor", "--help").stdout
