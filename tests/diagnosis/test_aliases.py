"""The tables: each is sound, speaks of known metrics and settings, and is told from the others by its own keys."""

from itertools import product

import pytest

from springtide.diagnosis.alias import tables
from springtide.diagnosis.identify import identify_keys
from springtide.diagnosis.keys import KeyMap
from springtide.diagnosis.metric import metrics
from springtide.diagnosis.setting import setting_meanings

TABLES = {table.framework: table for table in tables()}


def known(metric):
    return metric in metrics() or f"{metric.rpartition('/')[0]}/*" in metrics()


@pytest.mark.parametrize("name", TABLES)
def test_names_are_canonical(name):
    table = TABLES[name]
    assert [metric for metric in (*table.metrics, *table.never) if not known(metric)] == []
    assert [setting for setting in table.settings if setting not in setting_meanings()] == []


@pytest.mark.parametrize("name", TABLES)
def test_a_metric_is_logged_or_never_logged(name):
    assert TABLES[name].metrics.keys() & TABLES[name].never.keys() == set()


@pytest.mark.parametrize("name", TABLES)
def test_every_key_leads_to_its_metric(name):
    table = TABLES[name]
    keys = KeyMap(table)
    for (metric, alias), prefix in product(table.metrics.items(), ("", *table.prefixes)):
        for key in alias.keys:
            found = keys.find(prefix + key.replace("*", "some"))
            assert metric.replace("*", "some") in [each.metric for each in found], key


@pytest.mark.parametrize("name", [name for name in TABLES if name != "generic"])
def test_a_framework_is_known_by_its_first_keys(name):
    keys = [alias.keys[0].replace("*", "some") for alias in TABLES[name].metrics.values()]
    assert identify_keys(keys).framework == name


def test_unknown_keys_are_of_an_unknown_framework():
    assert identify_keys(["reward", "loss"]).framework == "generic"
    assert identify_keys([]).framework == "generic"
