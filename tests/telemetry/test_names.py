import re

import pytest

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
