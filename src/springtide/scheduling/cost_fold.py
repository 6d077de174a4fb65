"""What work takes, as it has been lately: service costs that are folded from finished pieces of work.

Each kind of work has a fit of its own (`online_fit.py`): visits to an engine, reloads, the passes of training, updates
of the optimizer, swaps, publications, changes of role. Its half-life is so much work of that kind, not so much time:
ranks that are idle forget nothing. What is known is replaced as a whole and never changed, so that another thread may
read it.
"""

from collections.abc import Sequence

from springtide.ports.engine import EngineStats
from springtide.ports.trainer import Passes, StepWork
from springtide.scheduling.costs import ServiceCosts
from springtide.scheduling.online_fit import OnlineFit

VISITS = 500
"""Half-life in visits, of all ranks together: enough for all mixtures of work to come by, and on one rank no more than
some train steps."""

COMMON = 100
"""In visits, of a factor that all visits have in common: it takes few to be sure of one number."""

RELOADS = 200
"""In visits in which anything was reloaded."""

STEPS = 2
"""In train steps, and in publications: in steps that last minutes, more would keep for long what is wrong."""

RARE = 3.0
"""Doubt about the prior of what happens once a step: there is no time for it to be wrong."""

SERVED = (
    "prefill_base",
    "prefill_token",
    "prefill_attention",
    "decode_base",
    "decode_sequence",
    "decode_context",
    "visit",
    "join",
    "turn",
)
RELOADED = ("reload_base", "reload_token")
SINGLE = ("reference_token", "optimizer", "swap", "publish", "role_switch")


def served(done: EngineStats) -> tuple[float, ...]:
    """How much of what `SERVED` names is in `done`, the totals of some work of an engine."""
    prefilled = done.prefilled + done.reprefilled + done.refreshed
    return (
        done.starts,
        prefilled,
        done.attended,
        done.steps,
        done.decoded,
        done.read,
        done.visits,
        done.joins,
        done.turns,
    )


class CostFold:
    """Every method is one finished piece of work. `prior`: the costs until then, and of what is never seen.

    A cost that the prior has as 0 is taken not to exist. Forward and backward passes are not told apart: they keep the
    prior's proportion.
    """

    def __init__(self, prior: ServiceCosts) -> None:
        self._costs = self._prior = prior
        self._visits = OnlineFit([getattr(prior, name) for name in SERVED], half_life=VISITS, common=COMMON)
        self._reloads = _fit(prior, RELOADED, RELOADS)
        token = prior.actor(1)
        self._actor = OnlineFit((token, token * prior.training_attention), half_life=STEPS, doubt=RARE)
        self._single = {name: _fit(prior, (name,), STEPS, doubt=RARE) for name in SINGLE}

    def now(self) -> ServiceCosts:
        """The costs as of now: a `CurrentCosts`."""
        return self._costs

    def visited(self, done: EngineStats, seconds: float) -> None:
        """An engine did what the totals `done` say, without those of before, in `seconds`."""
        self._visits.observe(served(done), max(0.0, seconds - done.reload_wait))
        found = dict(zip(SERVED, self._visits.coefficients, strict=True))
        if done.reloads:
            self._reloads.observe((done.reloads, done.reloaded), done.reload_seconds)
            found |= dict(zip(RELOADED, self._reloads.coefficients, strict=True))
        self._set(found)

    def trained(self, work: StepWork) -> None:
        """A train step."""
        self._actor.observe((work.actor.tokens, work.actor.attended), work.actor.seconds)
        token, attention = self._actor.coefficients
        whole = self._prior.actor(1)
        if whole > 0:
            changed = {name: getattr(self._prior, name) / whole * token for name in ("forward_token", "backward_token")}
            self._set(changed | {"training_attention": attention / token})
        if work.reference.seconds > 0:
            self._one("reference_token", self._tokens(work.reference), work.reference.seconds)
        self._one("optimizer", work.updates, work.update_seconds)
        self._one("swap", work.swaps, work.swap_seconds)

    def published(self, seconds: float) -> None:
        """A rank serves new weights."""
        self._one("publish", 1, seconds)

    def switched(self, seconds: float) -> None:
        """A rank has changed its role."""
        self._one("role_switch", 1, seconds)

    def _tokens(self, passes: Passes) -> float:
        """Tokens without context that take as long."""
        return passes.tokens + self._costs.training_attention * passes.attended

    def _one(self, name: str, amount: float, seconds: float) -> None:
        if amount > 0:
            fit = self._single[name]
            fit.observe((amount,), seconds)
            self._set({name: fit.coefficients[0]})

    def _set(self, changed: dict[str, float]) -> None:
        self._costs = self._costs.model_copy(update=changed)


def _fit(prior: ServiceCosts, names: Sequence[str], half_life: float, doubt: float = 1.0) -> OnlineFit:
    return OnlineFit([getattr(prior, name) for name in names], half_life=half_life, doubt=doubt)
