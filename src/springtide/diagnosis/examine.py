"""From a path to what is wrong with the runs in it: the library's way in, for notebooks and CI.

from springtide.diagnosis.examine import examine

for run in examine("outputs/trainer_state.json"):
    print(run.diagnosis.verdict, run.diagnosis.rollback_step)
"""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import msgspec

from springtide.core.errors import UsageError
from springtide.diagnosis.completions.analysis import with_completions
from springtide.diagnosis.completions.finding import completion_rules
from springtide.diagnosis.diagnose import diagnose
from springtide.diagnosis.read import read
from springtide.diagnosis.reports.account import Examined, worst
from springtide.diagnosis.rule import Rule, rules
from springtide.diagnosis.verdict import Diagnosis, Verdict


def examine(path: str | Path, *, only: Sequence[str] = ()) -> list[Examined]:
    """Read every run under `path` and diagnose it. `only`: symptoms, by id or name, that are looked at.

    Raises UsageError where there is no log.
    """
    wanted = {find_rule(each).id for each in only}
    frames = read(Path(path))
    if not frames:
        raise UsageError(
            f"{path} holds no training log that can be read: name a trainer_state.json, a console log, a file of JSON "
            "lines or CSV, or a folder of TensorBoard, W&B, MLflow, trackio or one of our runs."
        )
    return [Examined(frame, narrowed(with_completions(diagnose(frame), frame), wanted)) for frame in frames]


def find_rule(name: str) -> Rule:
    """By id or by name, however it is written."""
    by_id = {each.id: each for each in (*completion_rules(), *rules())}
    known = {each.name.lower(): by_id[each.id] for each in (*completion_rules(), *rules())}
    known |= {id_.lower(): rule for id_, rule in by_id.items()}
    key = name.strip().lower().replace("_", "-")
    if key in known:
        return known[key]
    near = get_close_matches(key, known, n=3)
    hint = f"did you mean {' or '.join(known[each].id + ' ' + known[each].name for each in near)}?" if near else ""
    raise UsageError(f"There is no symptom {name!r}; {hint or '`springtide doctor explain` lists all.'}")


def narrowed(found: Diagnosis, wanted: set[str]) -> Diagnosis:
    """The diagnosis as far as `wanted` symptoms go; all of it where none is named."""
    if not wanted:
        return found
    symptoms = tuple(each for each in found.symptoms if each.id in wanted)
    mover = found.earliest_mover if found.earliest_mover and found.earliest_mover.symptom in wanted else None
    first = next((each for each in symptoms if each.verdict in (Verdict.SICK, Verdict.WATCH)), None)
    needed = {metric for each in rules() if each.id in wanted for metric in each.needs}
    return msgspec.structs.replace(
        found,
        symptoms=symptoms,
        verdict=worst(each.verdict for each in symptoms),
        causes=first.causes if first else (),
        earliest_mover=mover,
        rollback_step=found.rollback_step if mover else None,
        unavailable=tuple(each for each in found.unavailable if each.metric in needed),
        not_checked={symptom: reason for symptom, reason in found.not_checked.items() if symptom in wanted},
    )
