"""What `springtide doctor` finds, and what it makes up, on labelled logs.

    python benchmarks/doctor.py --json
    python benchmarks/doctor.py --logs FOLDER

scores the project's own sick and healthy runs (`results/sick_runs`): the half that was held out when rules were tuned
gives the figures, the other half stands beside it. With `--logs`, the public logs of `doctor_support/run_logs.toml`
that are in the folder are scored as well; `--labels` names an index for others. Recall is the share of labelled logs
where one of the symptoms they are labelled with is found; `first_cause` and `top3_cause` are shares of the runs with a
planted cause. `--gate` ends with 1 where a healthy run is called SICK or a share is under its bar. `--measure` writes
what each rule found and made up to `src/springtide/diagnosis/measured.toml`, from where the rules print it.
"""

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import msgspec
import tomli_w

from common.report import finish, machine, parser, say, table
from doctor_support import corpus
from doctor_support.labels import RUN_LOGS, Label
from doctor_support.score import Outcome, by_rule, examine, figures, intervals
from springtide.diagnosis import rule
from springtide.diagnosis.frame import Frame

BARS = {"recall": 0.9, "top3_cause": 0.9, "first_cause": 0.7}
HEADER = ("log", "label", "verdict", "SICK", "WATCH", "cause", "rank")
MEASURED = Path(rule.__file__).with_name("measured.toml")
QUICK = 12
"""Runs of the project's own that are enough for a look."""


def main() -> None:
    options = arguments()
    began = time.monotonic()
    outcomes: dict[str, list[Outcome]] = {}
    if not options.no_own:
        mine = scored(corpus.own(), limit=QUICK if options.quick else None)
        for half in ("held_out", "tuning"):
            outcomes[half] = [each for each in mine if each.label.half == half]
    if options.logs is not None:
        outcomes["logs"] = scored(corpus.logs(options.logs, options.labels))
    everything = [each for found in outcomes.values() for each in found]
    first = next((found for found in outcomes.values() if found), [])
    told = figures(first) | {name: figures(found) for name, found in outcomes.items()}
    say(table(HEADER, [row(each) for each in everything]))
    if options.measure:
        MEASURED.write_text(tomli_w.dumps(measured(everything)), encoding="utf-8")
    record = {
        "machine": machine(),
        "seconds": round(time.monotonic() - began, 1),
        "intervals": {name: intervals(found) for name, found in outcomes.items()},
        "rules": by_rule(everything),
        "runs": {name: [msgspec.to_builtins(each) for each in found] for name, found in outcomes.items()},
    }
    finish("doctor", figures=told, record=record, options=options)
    if options.gate and (missed := below(told)):
        say("\n".join(missed))
        sys.exit(1)


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--logs", type=Path, help="folder with public logs")
    made.add_argument("--labels", type=Path, default=RUN_LOGS, help="index of the labels of --logs")
    made.add_argument("--no-own", action="store_true", help="leave out the project's own runs")
    made.add_argument("--gate", action="store_true", help="end with 1 if it is not good enough")
    made.add_argument("--measure", action="store_true", help="write what each rule found and made up beside the rules")
    return made.parse_args()


def scored(runs: Iterable[tuple[Label, list[Frame]]], limit: int | None = None) -> list[Outcome]:
    found = []
    for label, frames in runs:
        if frames:
            found.append(examine(label, frames))
        if limit is not None and len(found) >= limit:
            break
    return found


def row(outcome: Outcome) -> tuple[str, ...]:
    label = outcome.label
    return (
        label.path,
        label.verdict,
        outcome.verdict,
        " ".join(outcome.sick),
        " ".join(outcome.watched),
        label.cause or "-",
        "-" if not label.cause else str(outcome.rank or "none"),
    )


def measured(outcomes: list[Outcome]) -> dict[str, str]:
    """For each rule that was run: a sentence."""
    counts = by_rule(outcomes)
    healthy = sum(each.label.healthy for each in outcomes)
    empty = {"labelled": 0, "found": 0, "false_sick": 0, "watched": 0, "healthy": healthy}
    return {
        each.id: sentence(counts.get(each.id, empty), len(outcomes))
        for each in rule.rules()
        if each.detect and outcomes
    }


def sentence(count: dict[str, int], logs: int) -> str:
    recall = (
        f"found in {count['found']} of {count['labelled']} labelled" if count["labelled"] else "none labelled with it"
    )
    watched = f", WATCH in {count['watched']}" if count["watched"] else ""
    return f"On {logs} labelled logs: {recall}; SICK in {count['false_sick']} of {count['healthy']} healthy{watched}."


def below(told: dict[str, Any]) -> list[str]:
    missed = [f"{name} is {told[name]:.2f}, under {bar}" for name, bar in BARS.items() if (told[name] or 0) < bar]
    false = sum(part["false_sick"] for part in told.values() if isinstance(part, dict))
    return [*missed, *([f"{false} healthy runs are called SICK"] if false else [])]


if __name__ == "__main__":
    main()
