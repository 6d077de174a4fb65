"""The guide's entry on a symptom, and its index, as Markdown: made from the rule, so that neither says what the other
does not.
"""

import re
from collections.abc import Iterable, Sequence

from springtide.diagnosis.alias import Alias, AliasTable, tables
from springtide.diagnosis.completions.finding import completion_rules
from springtide.diagnosis.phrase import phrase
from springtide.diagnosis.rule import Detection, Grade, Guard, KnownCause, PossibleCause, Rule, causes, rules

GRADES: dict[Grade, str] = {
    "M": "measured on real logs",
    "C": "the maintainers' own threshold",
    "P": "a paper with an ablation",
    "I": "reported by one run or one issue",
    "H": "a heuristic",
    "D": "a derivation",
}

NOT_MEASURED = "This rule has not been run on data."

_GUESSED = "generic"
"""The table of keys that are guessed where the framework is not known."""

_LITERAL = re.compile(r"(`[^`]*`)")


def entry(rule: Rule, *, causes_page: str = "") -> str:
    """All that is known of a symptom. `causes_page`: where titles of causes link to, if anywhere."""
    shown = in_completions().get(rule.id)
    lines = [f"# {rule.id} {prose(rule.title)}", "", f"`{rule.name}`", "", sentence(rule.about), ""]
    lines += _looks(rule, shown)
    alike = [sentence(each.looks_like) for each in (rule, shown) if each is not None and each.looks_like]
    if alike:
        lines += ["## What else it could be", "", *(line for said in alike for line in (said, ""))]
    lines += _causes([*rule.causes, *(shown.causes if shown else ())], causes_page)
    lines += ["## How far to trust it", "", *_trust(rule, shown), ""]
    lines += _where(rule)
    links = dict.fromkeys([*rule.links, *(shown.links if shown else ())])
    if links:
        lines += ["## Sources", "", *(f"- {link_text(each)}" for each in links), ""]
    return "\n".join(lines).rstrip() + "\n"


def in_completions() -> dict[str, Rule]:
    """What completions show of a symptom, by its id; for some it is all that there is."""
    return {rule.id: rule for rule in completion_rules()}


def all_causes() -> list[KnownCause]:
    """Those that several symptoms share first, then those that are one symptom's own."""
    found = dict(causes())
    for rule in (*ordered(), *completion_rules()):
        found |= {each.id: each.known for each in rule.causes if each.id not in found}
    return list(found.values())


def index(*, pages: str = "") -> str:
    """All symptoms with what is known of each rule. `pages`: the folder of their pages, if ids are to be links."""
    rows = []
    for rule in ordered():
        id_ = f"[{rule.id}]({pages}{rule.id}.md)" if pages else rule.id
        levels = "/".join(dict.fromkeys(each.level for each in rule.detect))
        if not levels:
            levels = "from completions" if rule.id in in_completions() else "not from a log"
        grades = " ".join(dict.fromkeys(each.grade for each in rule.detect))
        rows.append([id_, cell(rule.title), levels, grades, cell(rule.measured or "not run on data")])
    return "\n".join(table(["", "symptom", "verdict", "grade", "measured"], rows)) + "\n"


def cause_entry(cause: KnownCause, *, pages: str = "") -> str:
    """A cause with the symptoms that it shows as."""
    shown = in_completions()
    shows = [
        rule
        for rule in ordered()
        if any(each.id == cause.id for one in (rule, shown.get(rule.id)) if one is not None for each in one.causes)
    ]
    named = [f"[{rule.id}]({pages}{rule.id}.md) {prose(rule.title)}" if pages else rule.id for rule in shows]
    lines = [f'<a id="{cause.id}"></a>', "", f"## {prose(cause.title)}", ""]
    if named:
        lines += ["Shows as " + ", ".join(named) + ".", ""]
    lines += [*_signs(cause), *_change(cause)]
    if cause.links:
        lines += ["Sources: " + ", ".join(link_text(each) for each in cause.links) + ".", ""]
    return "\n".join(lines).rstrip() + "\n"


def ordered() -> list[Rule]:
    """S2 before S10."""
    return sorted(rules(), key=lambda rule: [int(part) if part.isdigit() else part for part in _parts(rule.id)])


def prose(text: str) -> str:
    """Text of a rule, in which only code spans are meant as Markdown."""
    parts = _LITERAL.split(text.strip())
    return "".join(part if part.startswith("`") else re.sub(r"([*<\[\]])", r"\\\1", part) for part in parts)


def sentence(text: str) -> str:
    said = prose(text)
    return said[:1].upper() + said[1:] + ("" if said.endswith((".", "?", "!")) else ".")


def cell(text: str) -> str:
    return prose(" ".join(text.split())).replace("|", "\\|")


def link_text(link: str) -> str:
    return f"<{link}>" if link.startswith(("https://", "http://")) else prose(link)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows)]


def _parts(id_: str) -> list[str]:
    return [part for part in re.split(r"(\d+)", id_) if part]


def _looks(rule: Rule, shown: Rule | None) -> list[str]:
    lines = ["## What it looks like", ""]
    if rule.elsewhere:
        lines += [sentence(rule.elsewhere), ""]
    if shown is not None:
        lines += [f"**In completions:** {sentence(shown.about)}", ""]
    for detection in rule.detect:
        lines += _detection(detection)
    if rule.detect:
        lines += [f"Nothing is said before {rule.points} values are there.", ""]
    for guard in rule.guards:
        lines += [f"- Not looked for where the setting `{guard.setting}` {_guarded(guard)}: {prose(guard.because)}"]
    return [*lines, ""] if rule.guards else lines


def _guarded(guard: Guard) -> str:
    if guard.is_:
        return "is " + " or ".join(f"`{value}`" for value in guard.is_)
    return "is known and not " + " or ".join(f"`{value}`" for value in guard.is_not)


def _detection(detection: Detection) -> list[str]:
    together = "where" if len(detection.when) == 1 else "where all of this holds at the same time"
    lines = [f"**{detection.level}** {together}:", "", *(f"- {phrase(each)}" for each in detection.when), ""]
    return [*lines, f"Thresholds: {prose(detection.source)} ({GRADES[detection.grade]}).", ""]


def _causes(possible: Sequence[PossibleCause], causes_page: str) -> list[str]:
    if not possible:
        return []
    lines = ["## What it may come from, what to check next, and what to change", ""]
    for cause in {each.id: each.known for each in possible}.values():
        title = prose(cause.title)
        lines += [f"### {f'[{title}]({causes_page}#{cause.id})' if causes_page else title}", ""]
        lines += [*_signs(cause), *_change(cause)]
    return lines


def _signs(cause: KnownCause) -> list[str]:
    lines = []
    for speaks, weigh in (("for", 1), ("against", -1)):
        said = dict.fromkeys(prose(sign.says.removeprefix("but ")) for sign in cause.signs if sign.weight * weigh > 0)
        if said:
            lines += [f"What speaks {speaks} it: {'; '.join(said)}.", ""]
    return lines


def _change(cause: KnownCause) -> list[str]:
    """What to check, and what to change in each framework."""
    titles = {each.framework: each.title for each in tables()} | {"any": "any framework"}
    names = [*sorted(name for name in cause.remedy if name != "any"), *(["any"] if "any" in cause.remedy else [])]
    changes = [f"- {titles.get(name, name)}: {prose(cause.remedy[name])}" for name in names]
    return [f"**Check:** {sentence(cause.check)}", "", "**Change:**", "", *changes, ""]


def _trust(rule: Rule, shown: Rule | None) -> list[str]:
    grades = dict.fromkeys(each.grade for each in rule.detect)
    lines = [sentence(rule.measured) if rule.measured else NOT_MEASURED]
    if shown is not None:
        lines += ["", f"In completions: {sentence(shown.measured) if shown.measured else NOT_MEASURED}"]
    return [*lines, "", *(f"- Grade {grade}: {GRADES[grade]}." for grade in grades)]


def _where(rule: Rule) -> list[str]:
    """The metrics that it needs, under the names that frameworks have for them, and what turns them on."""
    if not rule.needs:
        return []
    lines = ["## Where its metrics are", ""]
    for metric in rule.needs:
        rows = [[each.title, *_keys(each, metric)] for each in tables() if each.framework != _GUESSED]
        lines += [f"`{metric}`", "", *table(["framework", "key", "to turn it on"], rows), ""]
    return lines


def _keys(known: AliasTable, metric: str) -> list[str]:
    alias: Alias | None = known.metrics.get(metric)
    if alias is None:
        return ["not logged", cell(known.never.get(metric, ""))]
    keys = " or ".join(f"`{key}`" for key in alias.keys)
    return [f"{keys} (since {cell(alias.since)})" if alias.since else keys, cell(alias.turn_on)]
