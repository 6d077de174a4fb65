"""What a diagnosis comes to. The structs are the interface of `springtide doctor --json`."""

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """Of a symptom, and of a run: that of its worst symptom."""

    OK = "OK"
    """Looked for, and not there."""
    WATCH = "WATCH"
    """There, and not known to be a fault: it costs something, or comes before many that are."""
    SICK = "SICK"
    INSUFFICIENT = "INSUFFICIENT"
    """Too few values to say."""
    UNAVAILABLE = "UNAVAILABLE"
    """A metric that is needed was not logged."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that holds, and the values that make it hold. `baseline`: what the run itself was like before."""

    metric: str
    text: str
    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    baseline: float | None = None


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """`score`: log-odds to the other causes, before scaling; `signs`: what in this run speaks for it or against it."""

    id: str
    title: str
    score: float
    signs: tuple[str, ...] = ()
    check: str = ""
    remedy: str = ""


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """A completion that shows a symptom. `text` is the telling part, as the policy wrote it: untrusted. `place`: where
    the whole stands; `why`: what to see in it."""

    place: str
    step: int
    text: str
    why: str
    group: str = ""
    reward: float | None = None


class Symptom(msgspec.Struct, frozen=True, kw_only=True):
    """One rule's finding. `onset_step`: from when on it holds, None if it is about the whole run; `seen_step`: the
    first at which that could be said. `causes`: the likeliest first. `measured`: recall and false alarms of the rule,
    or that it has not been run on data. `rows`: completions to read, where there are any."""

    id: str
    name: str
    title: str
    verdict: Verdict
    onset_step: int | None = None
    seen_step: int | None = None
    evidence: tuple[Evidence, ...] = ()
    causes: tuple[Cause, ...] = ()
    next_check: str = ""
    measured: str = ""
    rows: tuple[Excerpt, ...] = ()


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    metric: str
    reason: str
    turn_on: str = ""


class Mover(msgspec.Struct, frozen=True, kw_only=True):
    """The metric that left its baseline first, among those of symptoms that hold."""

    metric: str
    step: int
    symptom: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Of one run. `rollback_step`: the last checkpoint before the first mover, None without either. `causes`: of the
    run as a whole, over its symptoms. `not_checked`: symptoms that were not looked for, with the reason."""

    source: str
    framework: str
    steps: int
    verdict: Verdict
    symptoms: tuple[Symptom, ...] = ()
    causes: tuple[Cause, ...] = ()
    earliest_mover: Mover | None = None
    rollback_step: int | None = None
    unavailable: tuple[Missing, ...] = ()
    not_checked: dict[str, str] = {}
    notes: tuple[str, ...] = ()
