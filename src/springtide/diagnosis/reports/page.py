"""A diagnosis as one HTML page that needs nothing else: no script, no font, no picture from elsewhere.

It is well-formed XML too. All that comes from a log is escaped, and a policy in the page's head forbids a browser to
load or run anything, whatever a log has in it.
"""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from springtide import __version__
from springtide.core.visible import one_line, visible
from springtide.diagnosis.frame import Frame
from springtide.diagnosis.reports.account import (
    LIKELY,
    Account,
    Examined,
    account,
    cause_title,
    number,
    overview,
    place,
    seen,
    since,
    trust,
    worst,
)
from springtide.diagnosis.reports.curve import Domain, Mark, figure
from springtide.diagnosis.reports.destination import HTML
from springtide.diagnosis.verdict import Cause, Diagnosis, Evidence, Symptom, Verdict

VITALS = (
    "reward/mean",
    "eval/success",
    "train/entropy",
    "completion/length",
    "completion/truncated",
    "train/grad_norm",
    "train/zero_advantage_groups",
)
"""What a colleague looks at first, whatever is wrong."""

_CURVES = 12
_ROWS = 20
"""Rows of a piece of evidence that are shown."""


def page(runs: Sequence[Examined]) -> str:
    accounts = [account(each) for each in runs]
    body = [_overview(accounts)] if len(runs) > 1 else []
    body += [_run(index, each, told) for index, (each, told) in enumerate(zip(runs, accounts, strict=True), 1)]
    verdict = worst(told.verdict for told in accounts)
    name = accounts[0].source if len(accounts) == 1 else f"{len(accounts)} runs"
    style = (files("springtide.diagnosis.reports") / "style.css").read_text()
    return (
        f'{HTML}<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
        f"<title>{verdict.value}: {_say(name)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + f"\n<footer>Made by springtide {escape(__version__)} with <code>springtide doctor</code>. "
        "Verdicts are about what the log shows; what was not checked is said with each run.</footer>\n"
        "</main>\n</body>\n</html>\n"
    )


def _say(text: str) -> str:
    return escape(one_line(text))


def _overview(accounts: Sequence[Account]) -> str:
    rows = []
    said, names = overview(accounts)
    for index, (name, told) in enumerate(zip(names, accounts, strict=True), 1):
        first = told.findings[0] if told.findings else None
        cells = [
            f'<a href="#run-{index}">{_say(name)}</a>',
            _say(told.framework),
            _say(told.span),
            f'<span class="badge {told.verdict.value}">{told.verdict.value}</span>',
            "" if first is None else f"{_say(first.title)} ({_say(first.id)})",
            "" if first is None or first.onset_step is None else str(first.onset_step),
            _say(told.causes[0].title) if first is not None and told.causes else "",
        ]
        rows.append(cells)
    return f"<h1>{_say(said)}</h1>\n" + _table(
        ("run", "framework", "", "verdict", "symptom", "since step", "likeliest cause"), rows
    )


def _run(index: int, examined: Examined, told: Account) -> str:
    frame, found = examined.frame, examined.diagnosis
    parts = [
        f"<h1>{_say(told.source)}</h1>",
        f'<p class="source">{_say(told.framework)}, {_say(told.span)}</p>',
        _verdict(told),
        _facts(told),
        _curves(frame, found, told.findings),
        _symptoms(told.findings),
        _notes(told.notes),
        _unchecked(told),
        _folded("Settings, as far as the log says", told.settings),
        _folded("Keys that are not known", told.unknown),
    ]
    return f'<article id="run-{index}">\n' + "\n".join(part for part in parts if part) + "\n</article>"


def _verdict(told: Account) -> str:
    verdict = told.verdict.value
    return f'<p class="verdict {verdict}"><span class="badge">{verdict}</span><span>{_say(told.headline)}</span></p>'


def _facts(told: Account) -> str:
    if told.verdict not in (Verdict.SICK, Verdict.WATCH):
        return ""
    facts = [("Moved first", _say(told.mover)), ("Go back to", _say(told.rollback))]
    if told.causes:
        facts.append(("Most likely", f"<strong>{_say(told.causes[0].title)}</strong>{_list(told.causes[0].signs)}"))
    facts.append(("Next check", _say(told.next_check)))
    if told.causes and told.causes[0].remedy:
        facts.append((f"Change ({_say(told.framework)})", f'<span class="change">{_say(told.causes[0].remedy)}</span>'))
    if told.causes[1:]:
        facts.append(("Or else", _ranked(told.causes[1:], told.causes, start=2)))
    return '<dl class="facts">' + "".join(f"<dt>{name}</dt><dd>{said}</dd>" for name, said in facts if said) + "</dl>"


def _ranked(shown: Sequence[Cause], causes: Sequence[Cause], *, start: int) -> str:
    items = []
    likely = shown[: max(1, LIKELY - start + 1)]
    for cause in likely:
        more = [f"Check: {cause.check}"] * bool(cause.check) + [f"Change: {cause.remedy}"] * bool(cause.remedy)
        summary = f"<summary>{_say(cause_title(cause, causes))}</summary>" + _list((*cause.signs, *more))
        items.append(f"<li><details>{summary}</details></li>")
    others = [cause.title for cause in shown[len(likely) :]]
    return f'<ol start="{start}">{"".join(items)}</ol>' + _folded(f"{len(others)} that are less likely", others)


def _curves(frame: Frame, found: Diagnosis, findings: Sequence[Symptom]) -> str:
    """The reward, what moved first, what the findings rest on, and what is looked at first anyway."""
    mover = found.earliest_mover
    evidence = {each.metric: each for symptom in reversed(findings) for each in symptom.evidence}
    wanted = ["reward/mean"] + ([mover.metric] if mover else []) + list(reversed(evidence)) + list(VITALS)
    names = [name for name in dict.fromkeys(wanted) if name in frame.series and len(frame.series[name]) > 1][:_CURVES]
    if not names or frame.first_step is None or frame.last_step is None:
        return ""
    domain = Domain(frame.first_step, frame.last_step)
    shared = _marks(found, findings)
    figures = []
    for name in names:
        own = next((each for each in findings if any(shown.metric == name for shown in each.evidence)), None)
        marks = [mark for mark in shared if mark.kind != "onset" or own is None]
        if own is not None and own.onset_step is not None:
            marks.append(Mark("onset", own.onset_step, f"{own.id} since step {own.onset_step}"))
        baseline = evidence[name].baseline if name in evidence else None
        figures.append(figure(frame.series[name], domain, marks, baseline=baseline))
    legend = "".join(f'<li class="{mark.kind}">{_say(mark.text)}</li>' for mark in shared)
    return (
        f'<h2>Curves</h2>\n<ul class="legend">{legend}</ul>\n<div class="curves">\n' + "\n".join(figures) + "\n</div>"
    )


def _marks(found: Diagnosis, findings: Sequence[Symptom]) -> list[Mark]:
    marks = []
    if findings and findings[0].onset_step is not None:
        first = findings[0]
        marks.append(Mark("onset", findings[0].onset_step, f"{first.title}, since step {first.onset_step}"))
    mover = found.earliest_mover
    if mover is not None:
        marks.append(Mark("mover", mover.step, f"{mover.metric} moved first, at step {mover.step}"))
    if found.rollback_step is not None:
        marks.append(Mark("rollback", found.rollback_step, f"go back to step {found.rollback_step}"))
    return marks


def _symptoms(findings: Sequence[Symptom]) -> str:
    if not findings:
        return ""
    parts = ["<h2>What was found</h2>"]
    for symptom in findings:
        parts.append(
            f'<section><h3><span class="badge {symptom.verdict.value}">{symptom.verdict.value}</span> '
            f"{_say(symptom.title)} ({_say(symptom.id)}), {since(symptom)}</h3>"
        )
        parts.append(_list(said for said in (*(each.text for each in symptom.evidence), seen(symptom)) if said))
        parts += [
            f'<figure class="excerpt"><figcaption>{_say(place(row))}: {_say(row.why)}</figcaption>'
            f"<blockquote>{escape(visible(row.text))}</blockquote></figure>"
            for row in symptom.rows
        ]
        if symptom.next_check:
            parts.append(f"<p>Next check: {_say(symptom.next_check)}</p>")
        if symptom.causes:
            parts.append("<p>It may come from:</p>" + _ranked(symptom.causes, symptom.causes, start=1))
        rows = [_rows(each) for each in symptom.evidence if each.values]
        if rows:
            parts.append("<details><summary>The rows behind it</summary>" + "".join(rows) + "</details>")
        parts.append(f'<p class="measured">{_say(trust(symptom))}</p></section>')
    return "\n".join(parts)


def _rows(evidence: Evidence) -> str:
    pairs = list(zip(evidence.steps, evidence.values, strict=False))
    rows = [[str(step), number(value)] for step, value in pairs[:_ROWS]]
    more = f'<p class="reason">and {len(pairs) - _ROWS} more</p>' if len(pairs) > _ROWS else ""
    return _table(("step", evidence.metric), rows) + more


def _notes(notes: Sequence[str]) -> str:
    return "<h2>About the log</h2>\n" + _list(notes) if notes else ""


def _unchecked(told: Account) -> str:
    if not told.not_checked and not told.gaps and not told.never:
        return ""
    parts = ["<h2>What was not checked</h2>"]
    if told.gaps:
        rows = [
            [
                _say(", ".join(gap.metrics)),
                _say(", ".join(gap.tells)),
                f"<code>{_say(gap.turn_on)}</code>",
                _say(gap.reason),
            ]
            for gap in told.gaps
        ]
        parts.append(_table(("to see", "for", "turn on", "why it is missing"), rows))
    if told.never:
        never = [f"{', '.join(gap.metrics)}: {gap.reason}" for gap in told.never]
        parts.append(_folded("Not to be had from this log", never))
    if told.not_checked:
        count = len(told.not_checked)
        reasons = [f"{symptom}: {reason}" for symptom, reason in told.not_checked]
        parts.append(_folded(f"{count} symptom{'' if count == 1 else 's'} not looked for", reasons))
    fine = [f"{each.id} {each.title}" for each in told.others if each.verdict is Verdict.OK]
    return "\n".join([*parts, _folded("Looked for and not there", fine)])


def _folded(summary: str, items: Sequence[str]) -> str:
    return f"<details><summary>{_say(summary)}</summary>{_list(items)}</details>" if items else ""


def _list(items: Iterable[str]) -> str:
    said = "".join(f"<li>{_say(item)}</li>" for item in items)
    return f"<ul>{said}</ul>" if said else ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """`header` is text; cells are HTML."""
    head = "".join(f"<th>{_say(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
