import re
from pathlib import Path

import pytest

import springtide
from springtide.telemetry.names import METRICS, describe, ledger_name, parse_ledger_name


def test_names_are_unique_well_formed_and_explained():
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    for metric in METRICS:
        assert re.fullmatch(r"[a-z_]+(/([a-z_]+|<[a-z]+>))+", metric.name), metric.name
        assert metric.meaning.endswith(".")


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_name_describes_itself(metric):
    assert describe(metric.name.replace("<", "").replace(">", "")) is metric


def test_a_stranger_has_no_description():
    assert describe("train/unheard_of") is None
    assert describe("ledger/engine") is None


def test_ledger_names_round_trip():
    assert parse_ledger_name(ledger_name("engine", "waiting for groups")) == ("engine", "waiting for groups")
    assert parse_ledger_name("ledger/engine/unattributed_share") is None
    assert parse_ledger_name("train/loss") is None


AREAS = sorted({metric.name.partition("/")[0] for metric in METRICS})


def test_every_name_that_the_code_reports_is_canonical():
    pattern = re.compile(rf'"((?:{"|".join(AREAS)})/[a-z_]+)"')
    reported = {
        name
        for path in Path(springtide.__file__).parent.rglob("*.py")
        if "diagnosis" not in path.parts  # which reads what others report
        for name in pattern.findall(path.read_text(encoding="utf-8"))
    }
    assert len(reported) > 30, "the pattern finds the code's literals"
    assert sorted(name for name in reported if describe(name) is None) == [], "list them in telemetry/names.py"


def test_every_canonical_name_is_reported_by_something():
    text = "".join(
        path.read_text(encoding="utf-8")
        for path in Path(springtide.__file__).parent.rglob("*.py")
        if path.name != "names.py"
    )
    plain = [metric.name for metric in METRICS if "<" not in metric.name]
    assert [name for name in plain if f'"{name}"' not in text] == []
