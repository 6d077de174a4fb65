"""A diagnosis on a terminal: the verdict first, then since when, what it comes from, what to look at and to change.

Nothing that a log says is read as markup or reaches the terminal as a control character.
"""

from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from springtide.core.visible import one_line
from springtide.diagnosis.frame import Frame, Series
from springtide.diagnosis.reports.account import (
    Account,
    Examined,
    Gap,
    account,
    cause_title,
    number,
    overview,
    place,
    since,
    trust,
)
from springtide.diagnosis.verdict import Cause, Symptom, Verdict

STYLES = {
    Verdict.OK: "bold green",
    Verdict.WATCH: "bold yellow",
    Verdict.SICK: "bold red",
    Verdict.INSUFFICIENT: "bold magenta",
    Verdict.UNAVAILABLE: "bold magenta",
}

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 24
"""Characters of a curve."""

_AT_LENGTH = 3
"""Runs that are told at length beside others, at most."""

_READ = 3
"""Completions of a symptom that are shown, and..."""

_EXCERPT = 400
"""...characters of each."""

_GAPS = 4
"""Settings to turn on that are named without --verbose."""


def print_runs(console: Console, runs: Sequence[Examined], *, verbose: bool = False) -> None:
    """One run at length; several as a table, followed by those that are not well."""
    accounts = [account(each) for each in runs]
    if len(runs) > 1:
        _print_overview(console, accounts)
    at_length = [verbose or len(runs) == 1 or told.verdict in (Verdict.SICK, Verdict.WATCH) for told in accounts]
    if sum(at_length) > _AT_LENGTH and not verbose:
        console.print(Text("For one of them at length, name it alone; for all of them, --verbose.", "dim"))
        return
    for number_, (examined, told, wanted) in enumerate(zip(runs, accounts, at_length, strict=True), 1):
        if wanted:
            if len(runs) > 1:
                console.print()
                console.rule(Text(f"run {number_}", "dim"), align="left", style="dim")
            print_run(console, examined.frame, told, verbose=verbose)


def print_run(console: Console, frame: Frame, told: Account, *, verbose: bool = False) -> None:
    console.print(Text.assemble(_say(told.source), ("  " + _say(f"{told.framework}, {told.span}"), "dim")))
    console.print()
    console.print(Text.assemble((told.verdict.value, STYLES[told.verdict]), "  ", (_say(told.headline), "bold")))
    others = told.findings
    if told.findings and told.verdict in (Verdict.SICK, Verdict.WATCH):
        _print_evidence(console, frame, told.findings[0])
        _print_facts(console, told, verbose=verbose)
        others = told.findings[1:]
    _print_also(console, frame, others, verbose=verbose)
    if told.notes:
        console.print()
        console.print(Text("About the log", "bold"))
        _print_list(console, told.notes)
    _print_unchecked(console, told, verbose=verbose)
    if verbose:
        _print_others(console, told)
    if told.findings:
        console.print()
        console.print(Text(f"springtide doctor explain {told.findings[0].id}", "dim"), soft_wrap=True)


def _print_also(console: Console, frame: Frame, others: Sequence[Symptom], *, verbose: bool) -> None:
    """What else was found: a line each, and at length where it is SICK or asked for."""
    if others:
        console.print()
        console.print(Text("Also found", "bold"))
    for other in others:
        said = f"  {_say(other.title)} ({other.id}), {since(other)}"
        console.print(Text.assemble("  ", (other.verdict.value, STYLES[other.verdict]), said))
        if verbose or other.verdict is Verdict.SICK or other.rows:
            _print_evidence(console, frame, other)
        if verbose:
            _print_causes(console, other.causes, other.causes)


def _say(text: str) -> str:
    return one_line(text)


def _print_overview(console: Console, accounts: Sequence[Account]) -> None:
    said, names = overview(accounts)
    console.print(Text(_say(said), "bold"))
    table = Table(
        "", "run", "framework", "steps", "verdict", "symptom", "since", "likeliest cause", box=None, pad_edge=False
    )
    for number_, (name, told) in enumerate(zip(names, accounts, strict=True), 1):
        first = told.findings[0] if told.findings else None
        table.add_row(
            Text(str(number_), "dim"),
            Text(_say(name), overflow="fold"),
            Text(_say(told.framework)),
            Text(str(told.steps), "dim"),
            Text(told.verdict.value, STYLES[told.verdict]),
            Text("" if first is None else f"{first.id} {_say(first.name)}"),
            Text("" if first is None or first.onset_step is None else str(first.onset_step)),
            Text(_say(told.causes[0].title) if first is not None and told.causes else ""),
        )
    console.print(table)


def _print_evidence(console: Console, frame: Frame, symptom: Symptom) -> None:
    """What it rests on, each metric with its curve over the run."""
    drawn: set[str] = set()
    for each in symptom.evidence:
        line = Text("  ").append(_say(each.text))
        series = frame.series.get(each.metric)
        if series is not None and len(series) > 1 and each.metric not in drawn and console.encoding.startswith("utf"):
            line.append("  ").append(curve(series), "cyan")
            drawn.add(each.metric)
        console.print(line)
    for row in symptom.rows[:_READ]:
        console.print(Text.assemble(f"  {_say(place(row))}: ", (_say(row.why), "yellow")))
        console.print(Padding(Text(one_line(row.text, limit=_EXCERPT), "dim"), (0, 0, 0, 4)))
    console.print(Text(f"  {_say(trust(symptom))}", "dim"))


def _print_facts(console: Console, told: Account, *, verbose: bool) -> None:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column()
    for title, text in (("Moved first", told.mover), ("Go back to", told.rollback)):
        if text:
            facts.add_row(title, Text(_say(text)))
    if told.causes:
        facts.add_row("Most likely", _cause(told.causes[0], told.causes))
    if told.next_check:
        facts.add_row("Next check", Text(_say(told.next_check)))
    if told.causes and told.causes[0].remedy:
        facts.add_row(Text(_say(f"Change ({told.framework})")), Text(_say(told.causes[0].remedy), "green"))
    others = told.causes[1:] if verbose else told.causes[1:3]
    if others and not verbose:
        named = "\n".join(f"{_say(cause_title(cause, told.causes))}: {_say(cause.check)}" for cause in others)
        facts.add_row("Or else", Text(named))
    if facts.row_count:
        console.print()
        console.print(facts)
    if others and verbose:
        console.print(Text("Or else", "bold"))
        _print_causes(console, others, told.causes)


def _cause(cause: Cause, causes: Sequence[Cause]) -> Text:
    text = Text(_say(cause_title(cause, causes)), "bold")
    for sign in cause.signs:
        text.append(f"\n{_say(sign)}", "not bold dim")
    return text


def _print_causes(console: Console, shown: Sequence[Cause], causes: Sequence[Cause]) -> None:
    for cause in shown:
        text = _cause(cause, causes)
        for label, said in (("check", cause.check), ("change", cause.remedy)):
            if said:
                text.append(f"\n{label}: {_say(said)}", "not bold")
        console.print(Padding(text, (0, 0, 0, 2)))


def _print_unchecked(console: Console, told: Account, *, verbose: bool) -> None:
    if not told.not_checked and not told.gaps and not told.never:
        return
    telling = [gap for gap in told.gaps if gap.tells]
    shown = told.gaps if verbose else telling[:_GAPS]
    if not told.not_checked and not shown:
        return
    console.print()
    console.print(Text("Not checked", "bold"), Text(_count(len(told.not_checked)), "dim"))
    for gap in shown:
        console.print(Padding(_gap(gap), (0, 0, 0, 2)))
    hidden = len(telling) - len(shown)
    if hidden > 0:
        console.print(Text(f"  and {hidden} more that can be turned on (--verbose)", "dim"))
    if verbose:
        for gap in told.never:
            console.print(Text(f"  {', '.join(map(_say, gap.metrics))}: {_say(gap.reason)}", "dim"))
        for symptom, reason in told.not_checked:
            console.print(Text(f"  {symptom}: {_say(reason)}", "dim"))


def _count(symptoms: int) -> str:
    return "1 symptom" if symptoms == 1 else f"{symptoms} symptoms" if symptoms else ""


def _gap(gap: Gap) -> Text:
    text = Text(f"to see {', '.join(map(_say, gap.metrics))}")
    if gap.tells:
        text.append(f" (for {', '.join(gap.tells)})", "dim")
    return text.append(": ").append(_say(gap.turn_on), "green")


def _print_others(console: Console, told: Account) -> None:
    fine = [each.id for each in told.others if each.verdict is Verdict.OK]
    if fine:
        console.print()
        console.print(Text.assemble(("Looked for and not there  ", "bold"), ", ".join(fine)))
    for title, lines in (("Settings", told.settings), ("Keys that are not known", told.unknown)):
        if lines:
            console.print()
            console.print(Text.assemble((f"{title}  ", "bold"), _say(", ".join(lines))))


def _print_list(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(Text(f"  {_say(line)}"))


def curve(series: Series) -> str:
    """The series as a line of bars from its least to its largest value, with those at the ends: `0.68 ▇▅▁ 0.003`."""
    finite = np.isfinite(series.values)
    if not finite.any():
        return "not finite"
    parts = np.array_split(np.arange(len(series)), min(_WIDTH, len(series)))
    low, high = series.values[finite].min(), series.values[finite].max()
    bars = []
    for part in parts:
        held = series.values[part][finite[part]]
        if not len(held):
            bars.append("!")
            continue
        middle = np.sort(held)[len(held) // 2]
        share = 0.0 if high == low else (middle / 2 - low / 2) / (high / 2 - low / 2)  # huge values have no difference
        bars.append(_BARS[min(int(share * len(_BARS)), len(_BARS) - 1)])
    ends = series.values[finite][[0, -1]]
    return f"{number(ends[0])} {''.join(bars)} {number(ends[1])}"
