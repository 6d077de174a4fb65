"""The guide says what the rules do: it is made from them, and what people wrote beside it stays."""

import re
from pathlib import Path

import pytest

from springtide.cli.main import app
from springtide.diagnosis import entry as entries
from springtide.diagnosis.alias import tables
from springtide.diagnosis.entry import all_causes, entry, index, ordered, prose
from springtide.diagnosis.guide import FOLDER, MADE, main, pages, write, written_by_people
from springtide.diagnosis.phrase import phrase
from springtide.diagnosis.rule import Condition, KnownCause, Rule, Test

ROOT = Path(__file__).parents[2]

RULE = Rule.model_validate(
    {
        "id": "S33",
        "name": "length-runaway",
        "title": "Completions run into their limit",
        "about": "Ever more completions are cut off, and a < b * c.",
        "needs": ["completion/truncated", "staleness/mean"],
        "points": 8,
        "guards": [{"setting": "algorithm", "is": ["sft"], "because": "it is of sampled text"}],
        "detect": [
            {
                "level": "SICK",
                "when": [
                    {"metric": "completion/truncated", "test": "above", "value": 0.5, "run": 3},
                    {"metric": "reward/mean", "test": "below_peak", "value": 0.7, "smooth": 3},
                ],
                "source": "46 runs",
                "grade": "M",
            }
        ],
        "causes": [{"id": "no_stop"}],
        "looks_like": "A thinking model that never closes.",
        "links": ["https://example.org/x"],
        "measured": "found in 8 of 9",
    }
)
CAUSE = KnownCause.model_validate(
    {
        "id": "no_stop",
        "title": "No end of text is learnt",
        "signs": [{"weight": 1.0, "says": "length rose first"}, {"weight": -1.0, "says": "terminated length is flat"}],
        "check": "decode one completion",
        "remedy": {"trl": "mask_truncated_completions = False", "any": "a stop string"},
    }
)


@pytest.fixture
def one_rule(monkeypatch):
    monkeypatch.setattr(entries, "rules", lambda: (RULE,))
    monkeypatch.setattr(entries, "causes", lambda: {"no_stop": CAUSE})
    monkeypatch.setattr("springtide.diagnosis.rule.causes", lambda: {"no_stop": CAUSE})
    monkeypatch.setattr(entries, "completion_rules", lambda: ())


def test_an_entry_says_all_that_the_rule_knows(one_rule):
    text = entry(RULE)
    needed = [
        "# S33 Completions run into their limit",
        "and a \\< b \\* c.",
        "**SICK** where all of this holds at the same time:",
        "- `completion/truncated` is above 0.5, three times in a row",
        "- `reward/mean`, averaged over 3 values, is less than 0.7 of its best so far, beyond its noise, twice",
        "Thresholds: 46 runs (measured on real logs).",
        "Nothing is said before 8 values are there.",
        "- Not looked for where the setting `algorithm` is `sft`: it is of sampled text",
        "A thinking model that never closes.",
        "### No end of text is learnt",
        "What speaks for it: length rose first.",
        "What speaks against it: terminated length is flat.",
        "**Check:** Decode one completion.",
        "- TRL: mask_truncated_completions = False",
        "- any framework: a stop string",
        "Found in 8 of 9.",
        "| TRL | `completions/clipped_ratio` (since 2025-04-03) | TRL 0.17 or later logs it |",
        "| TRL | not logged | training is synchronous; there is none |",
        "<https://example.org/x>",
    ]
    places = [text.find(each) for each in needed]
    assert [each for each, place in zip(needed, places, strict=True) if place < 0] == []
    assert places == sorted(places)


def test_a_rule_that_was_not_run_on_data_says_so(one_rule):
    unmeasured = RULE.model_copy(update={"measured": ""})
    assert "This rule has not been run on data." in entry(unmeasured)


@pytest.mark.parametrize("test", Test.__args__)
def test_every_test_can_be_said(test):
    asked = {"metric": "a/b", "setting": "s" if test == "is" else "", "other": "c/d", "values": [True, "x"], "value": 3}
    said = phrase(Condition(test=test, **asked))
    assert re.match(r"(`a/b`|the setting `s`) is [^{}]+$", said)


def test_a_page_that_people_wrote_stays_and_is_named(tmp_path, one_rule):
    story = tmp_path / "journey/broken.md"
    story.parent.mkdir()
    story.write_text("# Twelve broken runs\n")
    stale = tmp_path / "symptoms/S99.md"
    stale.parent.mkdir()
    stale.write_text(f"{MADE}\n\n# gone\n")
    changed = write(tmp_path)
    assert story.read_text() == "# Twelve broken runs\n"
    assert not stale.exists()
    assert "[Twelve broken runs](journey/broken.md)" in (tmp_path / "README.md").read_text()
    assert {path.relative_to(tmp_path).as_posix() for path in changed} == {
        "README.md",
        "causes.md",
        "symptoms/S33.md",
        "symptoms/S99.md",
    }
    assert write(tmp_path) == []


def test_as_a_program_it_says_what_it_changed(tmp_path, one_rule, capsys):
    main([str(tmp_path)])
    assert str(tmp_path / "symptoms/S33.md") in capsys.readouterr().out
    main([str(tmp_path)])
    assert capsys.readouterr().out == f"{tmp_path} is up to date.\n"


def test_code_is_left_as_it_is():
    assert prose("`a*b` and a*b <c") == "`a*b` and a\\*b \\<c"


def test_symptoms_are_in_the_order_of_their_numbers(monkeypatch):
    found = [RULE.model_copy(update={"id": id_}) for id_ in ("S10", "M1", "S2", "S100")]
    monkeypatch.setattr(entries, "rules", lambda: found)
    assert [rule.id for rule in ordered()] == ["M1", "S2", "S10", "S100"]
    assert re.findall(r"^\| (\w+) \|", index(), re.M) == ["M1", "S2", "S10", "S100"]


class TestTheGuideOfTheProject:
    folder = ROOT / FOLDER

    def test_has_not_drifted_from_the_rules(self):
        made = pages(written_by_people(self.folder))
        there = {
            file.relative_to(self.folder).as_posix(): file.read_text(encoding="utf-8")
            for file in self.folder.rglob("*.md")
            if file.read_text(encoding="utf-8").startswith(MADE)
        }
        drifted = sorted(path for path in made.keys() | there.keys() if made.get(path) != there.get(path))
        assert drifted == [], "run `python -m springtide.diagnosis.guide`"

    def test_links_lead_somewhere(self):
        for file in self.folder.rglob("*.md"):
            for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read_text(encoding="utf-8")):
                assert (file.parent / link).exists(), (file.name, link)

    def test_commands_that_it_names_exist(self):
        known = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
        text = "".join(file.read_text(encoding="utf-8") for file in self.folder.rglob("*.md"))
        assert set(re.findall(r"`springtide (\w+)", text)) - known == set()

    def test_every_cause_of_a_symptom_is_explained(self):
        text = (self.folder / "causes.md").read_text(encoding="utf-8")
        assert [each.id for each in all_causes() if f'<a id="{each.id}"></a>' not in text] == []

    def test_every_framework_that_can_be_read_is_in_the_table_of_a_metric(self):
        text = (self.folder / "symptoms/S33.md").read_text(encoding="utf-8")
        assert [
            table.title for table in tables() if table.framework != "generic" and f"| {table.title} |" not in text
        ] == []
