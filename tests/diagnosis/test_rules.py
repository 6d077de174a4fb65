"""Rules and causes as data: complete, and about metrics and settings that exist."""

import tomllib
from fnmatch import fnmatchcase
from importlib.resources import files

import pytest

from springtide.diagnosis.metric import metrics
from springtide.diagnosis.rule import causes, rules

DERIVED_SETTINGS = {"ended_with_error", "error_kind", "unfinished", "last_only", "runs_in_file"}


def conditions():
    for rule in rules():
        for detection in rule.detect:
            yield from ((rule.id, each) for each in detection.when)
    for cause in causes().values():
        for sign in cause.signs:
            yield from ((cause.id, each) for each in (*sign.when, *sign.never))


def known(name):
    families = [each for each in metrics() if each.endswith("/*")]
    return name in metrics() or any(fnmatchcase(name, each) for each in families)


def test_there_are_all_of_the_index():
    assert [rule.id for rule in rules()] == [f"S{number:02}" for number in range(1, 62)]
    assert len({rule.name for rule in rules()}) == len(rules())


def test_a_rule_detects_or_says_where_to_look():
    assert [rule.id for rule in rules() if bool(rule.detect) == bool(rule.elsewhere)] == []


def test_metrics_and_settings_exist():
    settings = set(tomllib.loads((files("springtide.diagnosis") / "settings.toml").read_text())) | DERIVED_SETTINGS
    assert {(id_, each.metric) for id_, each in conditions() if each.metric and not known(each.metric)} == set()
    assert {(id_, each.other) for id_, each in conditions() if each.other and not known(each.other)} == set()
    assert {(id_, each.setting) for id_, each in conditions() if each.setting and each.setting not in settings} == set()
    assert {guard.setting for rule in rules() for guard in rule.guards} <= settings
    assert {need for rule in rules() for need in rule.needs if not known(need)} == set()


def test_every_cause_is_named_by_a_symptom_and_known():
    named = {each.id for rule in rules() for each in rule.causes}
    assert named == set(causes())


def test_detected_symptoms_have_causes_with_checks_and_remedies():
    for rule in rules():
        if rule.detect:
            assert rule.causes, rule.id
        for possible in rule.causes:
            assert possible.known.check, possible.id
            assert "any" in possible.known.remedy, possible.id


@pytest.mark.parametrize("rule", [rule for rule in rules() if rule.detect], ids=lambda rule: rule.id)
def test_a_sick_detection_has_a_source(rule):
    assert all(detection.source and detection.grade for detection in rule.detect)


def test_what_was_measured_is_of_rules_that_detect():
    measured = tomllib.loads((files("springtide.diagnosis") / "measured.toml").read_text())
    assert set(measured) == {rule.id for rule in rules() if rule.detect}
    assert all(rule.measured == measured[rule.id] for rule in rules() if rule.detect)
