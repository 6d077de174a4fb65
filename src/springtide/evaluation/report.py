"""The report of a run: report.md, result.json and curve.png in its folder, rebuilt at will from what it recorded."""

import logging
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from springtide.evaluation.count import Count
from springtide.evaluation.curve import draw_curve
from springtide.evaluation.result import History, RunResult, history, partial_result, read_result, store
from springtide.evaluation.statistics import Interval, difference, rate_interval
from springtide.telemetry.jsonl import read_metrics
from springtide.telemetry.ledger import UNATTRIBUTED
from springtide.telemetry.run_folder import RunFolder, write_atomically
from springtide.telemetry.status import Status, read_status
from springtide.telemetry.verdicts import VerdictRecord, read_verdicts

LOGGER = logging.getLogger("springtide.evaluation")

Row = tuple[str, ...]

HEADER: Row = ("", "success", "95 % interval", "episodes", "invalid")


def load_result(folder: RunFolder) -> tuple[RunResult, History]:
    """A run's result and history; so far, if it has not ended."""
    past = history(read_metrics(folder.metrics))
    stored = read_result(folder.result)
    if stored is not None:
        return stored.result, past
    return partial_result(folder.id, _seconds_so_far(past, read_status(folder.status)), past), past


def _seconds_so_far(past: History, status: Status | None) -> float:
    """For how long processes drove the run, in sum: the last by its status, the earlier ones by their metrics."""
    if status is None:
        return sum(span.end - span.start for span in past.processes)
    earlier = [span for span in past.processes if span.end <= status.started]
    return sum(span.end - span.start for span in earlier) + status.updated - status.started


def write_report(folder: RunFolder, result: RunResult) -> None:
    """Write result.json, report.md and, where matplotlib is installed, curve.png."""
    past = history(read_metrics(folder.metrics))
    write_atomically(folder.result, store(result, past))
    render_report(folder, result, past)


def render_report(folder: RunFolder, result: RunResult, past: History) -> None:
    """Write report.md and, where matplotlib is installed, curve.png."""
    drawn = _draw(folder.curve, result, past)
    write_atomically(folder.report, markdown(folder, result, past, curve=drawn).encode())


def success_rows(result: RunResult) -> list[Row]:
    """The before / after table below `HEADER`. Invalid episodes stand beside the rates, never in them."""
    rows = [
        _count_row(label, count)
        for label, count in (("before", result.before), ("after", result.after))
        if count is not None
    ]
    if result.before is not None and result.after is not None:
        gain = difference(result.before, result.after)
        if gain is not None:
            rows.append(("gain", f"{gain.estimate:+.3f}", f"{gain.low:+.3f} to {gain.high:+.3f}", "", ""))
    return rows


def next_commands(run: str) -> list[tuple[str, str]]:
    """What to do with a run now: (command, why)."""
    return [
        (f"springtide show {run}", "read what the agent did, turn by turn"),
        (f"springtide train --resume {run}", "go on, or add --from STEP to branch from an earlier point"),
        (f"springtide export {run} {run}-model", "write a folder that transformers loads"),
    ]


def markdown(folder: RunFolder, result: RunResult, past: History, *, curve: bool) -> str:
    """The whole report as Markdown."""
    info = folder.info
    versions = ", ".join(f"{name} {version}" for name, version in info.versions.items())
    lines = [
        f"# Run {info.id}",
        "",
        f"Made {info.created} by springtide {info.springtide} ({versions}).",
    ]
    if info.parent is not None:
        lines.append(f"Branched from run {info.parent.run} at step {info.parent.step}.")
    if info.sandbox_level:
        lines.append(f"Sandbox level: {info.sandbox_level}.")
    lines += ["", "## Held-out tasks", ""]
    rows = success_rows(result)
    lines += _table(HEADER, rows) if rows else ["Nothing was evaluated."]
    lines += [
        "",
        "Intervals are Wilson's at 95 %; the gain's is Newcombe's for independent episodes, which as a rule is wider",
        "than one that knows the tasks to be the same. Invalid episodes ended for a cause outside the agent's reach",
        "and are part of no rate.",
        "",
        f"Wall time {duration(result.seconds)}; goodput {result.goodput_tokens_per_s:,.0f} trained tokens per second.",
    ]
    if curve:
        lines += ["", "## On the way", "", f"![Reward, held-out success and where the time went]({folder.curve.name})"]
    if len(past.evaluations) > 1:
        evaluated = [_count_row(str(evaluation.step), evaluation.count) for evaluation in past.evaluations]
        lines += ["", *_table(("step", *HEADER[1:]), evaluated)]
    lines += _diagnosis_section(folder)
    lines += _ledger_section(past)
    if past.costs:
        named = ", ".join(f"{name} {seconds:.3g}" for name, seconds in past.costs.items())
        lines += ["", f"What work took at last, as fitted (service costs, in seconds): {named}."]
    lines += ["", "## Next", ""]
    lines += [f"- `{command}`: {why}" for command, why in next_commands(str(folder.path))]
    return "\n".join(lines) + "\n"


def duration(seconds: float) -> str:
    """`seconds` as a person says it: 48 s, 5 min 03 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def show_interval(interval: Interval | None) -> str:
    return "-" if interval is None else f"{interval.low:.3f} to {interval.high:.3f}"


def _count_row(label: str, count: Count) -> Row:
    rate = "-" if count.rate is None else f"{count.rate:.3f}"
    return (label, rate, show_interval(rate_interval(count)), f"{count.k} of {count.n}", str(count.invalid))


def _diagnosis_section(folder: RunFolder) -> list[str]:
    """What the monitor said at last, and at which steps its verdict changed."""
    records = list(read_verdicts(folder.diagnosis))
    if not records:
        return []
    last = records[-1]
    lines = ["", "## Diagnosis", "", f"{last.verdict} at step {last.step}{_changes(records)}."]
    if last.symptoms:
        rows = [
            (
                symptom.verdict,
                f"{symptom.id} {symptom.title}",
                "-" if symptom.onset_step is None else str(symptom.onset_step),
                symptom.causes[0] if symptom.causes else "-",
                symptom.next_check or "-",
            )
            for symptom in last.symptoms
        ]
        lines += ["", *_table(("", "symptom", "since step", "likeliest cause", "next check"), rows)]
    if last.rollback_step is not None:
        lines += ["", f"The last checkpoint before the first mover ({last.earliest_mover}): step {last.rollback_step}."]
    return [*lines, "", f"`springtide doctor {folder.path}` says more."]


def _changes(records: Sequence[VerdictRecord]) -> str:
    """Where the verdict was another before."""
    changed = [
        f"{after.verdict} from step {after.step}"
        for before, after in pairwise(records)
        if before.verdict != after.verdict
    ]
    return f" (at first {records[0].verdict}, {', '.join(changed)})" if changed else ""


def _ledger_section(past: History) -> list[str]:
    if not past.ledger:
        return []
    rows = []
    for lane, bins in past.ledger.items():
        total = sum(bins.values()) or 1.0
        largest = sorted(bins.items(), key=lambda item: -item[1])
        named = ", ".join(f"{name} {seconds / total:.1%}" for name, seconds in largest if name != UNATTRIBUTED)
        rows.append((lane, duration(total), named, f"{bins.get(UNATTRIBUTED, 0.0) / total:.2%}"))
    return ["", "## Where the time went", "", *_table(("lane", "lifetime", "bins", "unattributed"), rows)]


def _table(header: Row, rows: Sequence[Row]) -> list[str]:
    lines = [header, tuple("---" for _ in header), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _draw(path: Path, result: RunResult, past: History) -> bool:
    """Whether there is a curve now. It is a convenience: what fails in it never costs the report, or the run."""
    if not (past.rewards or past.evaluations):
        return False
    try:
        if find_spec("matplotlib") is None:
            LOGGER.info("matplotlib is not installed: the report has no curve.")
            return False
        draw_curve(path, title=result.run, past=past)
    except Exception as error:
        LOGGER.warning("The report has no curve, as matplotlib failed: %s.", error or type(error).__name__)
        return False
    return True
