"""A diagnosis as Markdown, for an issue, a pull request or a job's summary.

Log text is literal: whatever Markdown, or the HTML within it, would take as its own is escaped.
"""

import re
from collections.abc import Iterable, Sequence

from springtide.core.visible import one_line
from springtide.diagnosis.reports.account import (
    LIKELY,
    Account,
    Examined,
    account,
    cause_title,
    overview,
    place,
    seen,
    since,
    trust,
)
from springtide.diagnosis.reports.destination import MARKDOWN
from springtide.diagnosis.verdict import Cause, Symptom, Verdict

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~$&!@])")
"""Also what is special only to widespread dialects: tables, mathematics, mentions."""


def markdown(runs: Sequence[Examined]) -> str:
    accounts = [account(each) for each in runs]
    lines = [] if len(runs) == 1 else _overview(accounts)
    for told in accounts:
        lines += _run(told)
    return MARKDOWN + "\n".join(lines).rstrip() + "\n"


def literal(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", one_line(text))


def code(text: str) -> str:
    """A code span. Within it only the backtick that would end it needs care, and in a table the bar."""
    said = one_line(text).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", said)), default=0))
    return f"{fence} {said} {fence}" if "`" in said else f"`{said}`"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows)]


def _overview(accounts: Sequence[Account]) -> list[str]:
    rows = []
    said, names = overview(accounts)
    for name, told in zip(names, accounts, strict=True):
        first = told.findings[0] if told.findings else None
        rows.append(
            [
                literal(name),
                literal(told.framework),
                told.verdict.value,
                "" if first is None else f"{literal(first.title)} ({literal(first.id)})",
                "" if first is None or first.onset_step is None else str(first.onset_step),
                literal(told.causes[0].title) if first is not None and told.causes else "",
            ]
        )
    header = ["run", "framework", "verdict", "symptom", "since step", "likeliest cause"]
    return [f"# {literal(said)}", "", *table(header, rows), ""]


def _run(told: Account) -> list[str]:
    lines = [f"## {literal(told.source)}", "", f"{literal(told.framework)}, {literal(told.span)}", ""]
    lines += [f"**{told.verdict.value}: {literal(told.headline)}**", ""]
    judged = told.verdict in (Verdict.SICK, Verdict.WATCH)
    if judged:
        lines += _facts(told)
    if judged and len(told.causes) > 1:
        lines += ["### Or else", "", *_ranked(told.causes[1:], told.causes, start=2), ""]
    if told.findings:
        lines += ["### What was found", ""]
        for symptom in told.findings:
            lines += _symptom(symptom)
    if told.notes:
        lines += ["### About the log", "", *(f"- {literal(note)}" for note in told.notes), ""]
    return lines + _unchecked(told)


def _facts(told: Account) -> list[str]:
    facts = [("Moved first", literal(told.mover)), ("Go back to", literal(told.rollback))]
    if told.causes:
        signs = "; ".join(literal(sign) for sign in told.causes[0].signs)
        facts.append(("Most likely", literal(told.causes[0].title) + (f" ({signs})" if signs else "")))
    facts.append(("Next check", literal(told.next_check)))
    if told.causes:
        facts.append((f"Change ({literal(told.framework)})", literal(told.causes[0].remedy)))
    return [f"- **{name}:** {said}" for name, said in facts if said] + [""]


def _ranked(shown: Sequence[Cause], causes: Sequence[Cause], *, start: int) -> list[str]:
    lines = []
    likely = shown[: LIKELY - start + 1]
    for rank, cause in enumerate(likely, start):
        said = [literal(cause_title(cause, causes))] + ["; ".join(literal(sign) for sign in cause.signs)] * bool(
            cause.signs
        )
        said += [f"Check: {literal(cause.check)}"] * bool(cause.check)
        said += [f"Change: {literal(cause.remedy)}"] * bool(cause.remedy)
        lines.append(f"{rank}. " + " ".join(part if part.endswith((".", "?")) else f"{part}." for part in said))
    others = "; ".join(literal(cause.title) for cause in shown[len(likely) :])
    return [*lines, *(["", f"Less likely: {others}."] if others else [])]


def _symptom(symptom: Symptom) -> list[str]:
    lines = [f"**{symptom.verdict.value}** {literal(symptom.title)} ({literal(symptom.id)}), {since(symptom)}", ""]
    lines += [f"- {literal(each.text)}" for each in symptom.evidence]
    lines += [f"- {seen(symptom)}"] * bool(seen(symptom))
    lines += [f"- {literal(place(row))}: {literal(row.why)}\n\n  > {literal(row.text)}\n" for row in symptom.rows]
    return [*lines, f"- {literal(trust(symptom))}", ""]


def _unchecked(told: Account) -> list[str]:
    if not told.not_checked and not told.gaps and not told.never:
        return []
    lines = ["### What was not checked", ""]
    if told.gaps:
        rows = [[literal(", ".join(gap.metrics)), ", ".join(gap.tells), code(gap.turn_on)] for gap in told.gaps]
        lines += [*table(["to see", "for", "turn on"], rows), ""]
    lines += [f"- {literal(', '.join(gap.metrics))}: {literal(gap.reason)}" for gap in told.never]
    lines += [f"- {literal(symptom)}: {literal(reason)}" for symptom, reason in told.not_checked]
    fine = [each.id for each in told.others if each.verdict is Verdict.OK]
    if fine:
        lines += ["", f"Looked for and not there: {', '.join(fine)}."]
    return [*lines, ""]
