"""What a run came to: the counts before and after, and how its time was spent."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from springtide.core.errors import RunDamagedError
from springtide.evaluation.count import Count
from springtide.telemetry.jsonl import series
from springtide.telemetry.names import parse_ledger_name
from springtide.telemetry.record import MetricRecord


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """`seconds` is for how long processes drove the run, in sum; counts that were not taken are None."""

    run: str
    seconds: float
    before: Count | None
    after: Count | None
    goodput_tokens_per_s: float


class Evaluation(msgspec.Struct, frozen=True):
    """Held-out episodes at a train step."""

    step: int
    count: Count


class Rewards(msgspec.Struct, frozen=True):
    """Mean training reward at a step, with its standard error where it is known."""

    step: int
    mean: float
    standard_error: float | None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What the metrics file says about the way. `ledger` has seconds per lane and bin."""

    evaluations: tuple[Evaluation, ...] = ()
    rewards: tuple[Rewards, ...] = ()
    ledger: dict[str, dict[str, float]] = {}
    goodput_tokens_per_s: float | None = None


class StoredResult(msgspec.Struct, frozen=True, kw_only=True):
    """`result.json`: the result with the raw records behind it."""

    run: str
    seconds: float
    before: Count | None
    after: Count | None
    goodput_tokens_per_s: float
    evaluations: tuple[Evaluation, ...] = ()
    ledger: dict[str, dict[str, float]] = {}

    @property
    def result(self) -> RunResult:
        return RunResult(
            run=self.run,
            seconds=self.seconds,
            before=self.before,
            after=self.after,
            goodput_tokens_per_s=self.goodput_tokens_per_s,
        )


def history(records: Iterable[MetricRecord]) -> History:
    """Fold metric records: of repeated steps the last counts."""
    records = list(records)
    errors = dict(series(records, "reward/standard_error"))
    rewards = tuple(Rewards(step, mean, errors.get(step)) for step, mean in series(records, "reward/mean"))
    goodput = series(records, "rollout/goodput_tokens_per_s")
    return History(
        evaluations=_evaluations(records),
        rewards=rewards,
        ledger=_ledger(records),
        goodput_tokens_per_s=goodput[-1][1] if goodput else None,
    )


def partial_result(run: str, seconds: float, past: History) -> RunResult:
    """The result so far of a run that has not ended: the first evaluation against the last one."""
    first, *later = past.evaluations or (None,)
    last = later[-1] if later else None
    return RunResult(
        run=run,
        seconds=seconds,
        before=first.count if first is not None else None,
        after=last.count if last is not None else None,
        goodput_tokens_per_s=past.goodput_tokens_per_s or 0.0,
    )


def store(result: RunResult, past: History) -> bytes:
    """The content of `result.json`."""
    stored = StoredResult(**msgspec.structs.asdict(result), evaluations=past.evaluations, ledger=past.ledger)
    return msgspec.json.format(msgspec.json.encode(stored), indent=2) + b"\n"


def read_result(path: Path) -> StoredResult | None:
    """The stored result; None if the run has none yet. RunDamagedError if it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=StoredResult)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise RunDamagedError(
            f"{path} cannot be read ({error}): delete it and resume the run, which makes it again."
        ) from error


def _evaluations(records: list[MetricRecord]) -> tuple[Evaluation, ...]:
    parts: list[Mapping[int, float]] = [
        dict(series(records, name)) for name in ("eval/successes", "eval/valid", "eval/invalid")
    ]
    successes, valid, invalid = parts
    return tuple(
        Evaluation(step, Count(int(successes[step]), int(valid[step]), int(invalid.get(step, 0))))
        for step in sorted(successes.keys() & valid.keys())
    )


def _ledger(records: list[MetricRecord]) -> dict[str, dict[str, float]]:
    """Seconds per lane and bin. A resumed run starts its totals afresh: where one drops, a new process began."""
    finished: dict[tuple[str, str], float] = {}
    latest: dict[tuple[str, str], float] = {}
    for record in records:
        totals = {key: value for name, value in record.metrics.items() if (key := parse_ledger_name(name))}
        if any(value < latest.get(key, 0.0) for key, value in totals.items()):
            for key, value in latest.items():
                finished[key] = finished.get(key, 0.0) + value
            latest = {}
        latest |= totals
    lanes: dict[str, dict[str, float]] = {}
    for lane, bin_name in sorted(finished.keys() | latest.keys()):
        key = (lane, bin_name)
        lanes.setdefault(lane, {})[bin_name] = finished.get(key, 0.0) + latest.get(key, 0.0)
    return lanes
