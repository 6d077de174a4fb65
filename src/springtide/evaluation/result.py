"""What a run came to: the counts before and after, and how its time was spent."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from springtide.core.errors import RunDamagedError
from springtide.evaluation.count import Count
from springtide.telemetry.jsonl import series
from springtide.telemetry.names import COSTS, parse_ledger_name
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


class Span(msgspec.Struct, frozen=True):
    """When a process drove the run, in Unix seconds: from the start of its lanes to the last metrics that it wrote."""

    start: float
    end: float


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What the metrics file says about the way. `ledger` has seconds per lane and bin, over all `processes`; `costs`
    are the last ones that were fitted."""

    evaluations: tuple[Evaluation, ...] = ()
    rewards: tuple[Rewards, ...] = ()
    ledger: dict[str, dict[str, float]] = {}
    processes: tuple[Span, ...] = ()
    goodput_tokens_per_s: float | None = None
    costs: dict[str, float] = {}


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
    processes = _processes(records)
    return History(
        evaluations=_evaluations(records),
        rewards=rewards,
        ledger=_summed(processes),
        processes=tuple(Span(process.start, process.end) for process in processes),
        goodput_tokens_per_s=goodput[-1][1] if goodput else None,
        costs=_costs(records),
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
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunDamagedError(
            f"{path} cannot be read ({error}): delete it and resume the run, which makes it again."
        ) from error


def _costs(records: list[MetricRecord]) -> dict[str, float]:
    """Those of the last step that has any."""
    told = ({n.removeprefix(COSTS): s for n, s in r.metrics.items() if n.startswith(COSTS)} for r in reversed(records))
    return next((costs for costs in told if costs), {})


def _evaluations(records: list[MetricRecord]) -> tuple[Evaluation, ...]:
    parts: list[Mapping[int, float]] = [
        dict(series(records, name)) for name in ("eval/successes", "eval/valid", "eval/invalid")
    ]
    successes, valid, invalid = parts
    found = []
    for step in sorted(successes.keys() & valid.keys()):
        with suppress(ValueError):  # a damaged line: not a number, or more successes than episodes
            count = Count(int(successes[step]), int(valid[step]), int(invalid.get(step, 0)))
            found.append(Evaluation(step, count))
    return tuple(found)


Bins = dict[str, dict[str, float]]
"""Seconds per lane and bin."""


class _Process:
    """What one process booked. Its totals begin at zero, so a resumed run's have to be told from its predecessor's."""

    def __init__(self, time: float, lanes: Bins) -> None:
        self.start = min(time - sum(bins.values()) for bins in lanes.values())
        self.end = time
        self.lanes = lanes

    def take(self, time: float, lanes: Bins) -> None:
        self.end = time
        self.lanes = {**self.lanes, **lanes}

    def goes_on_in(self, time: float, lanes: Bins) -> bool:
        """Not if some total is below what it was, or a lane that is known began only after the last record."""
        for lane in lanes.keys() & self.lanes.keys():
            if any(lanes[lane].get(name, 0.0) < seconds for name, seconds in self.lanes[lane].items()):
                return False
            if time - sum(lanes[lane].values()) > self.end:
                return False
        return True


def _processes(records: list[MetricRecord]) -> list[_Process]:
    found: list[_Process] = []
    for record in records:
        lanes: Bins = {}
        for name, seconds in record.metrics.items():
            if key := parse_ledger_name(name):
                lanes.setdefault(key[0], {})[key[1]] = seconds
        if lanes and found and found[-1].goes_on_in(record.time, lanes):
            found[-1].take(record.time, lanes)
        elif lanes:
            found.append(_Process(record.time, lanes))
    return found


def _summed(processes: list[_Process]) -> Bins:
    total: Bins = {}
    for lane in sorted({lane for process in processes for lane in process.lanes}):
        booked = [process.lanes.get(lane, {}) for process in processes]
        names = sorted({name for bins in booked for name in bins})
        total[lane] = {name: sum(bins.get(name, 0.0) for bins in booked) for name in names}
    return total
