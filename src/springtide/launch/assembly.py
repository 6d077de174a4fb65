"""Wires a run: every part is made here, by hand, and knows only the ports of the others."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from springtide.config import Recipe
from springtide.engines.blocks import PADDING
from springtide.engines.torch_engine import TorchEngine
from springtide.engines.turns import reserved
from springtide.launch.checkpoints import RunCheckpoints
from springtide.launch.customize import unchanged
from springtide.launch.prior import prior
from springtide.policy.config import PretrainedModelConfig
from springtide.policy.device import choose_device, compute_dtype
from springtide.policy.model import served_copy
from springtide.ports.clock import Clock
from springtide.ports.engine import Engine
from springtide.ports.environment import EnvironmentSource
from springtide.ports.executor import Executor
from springtide.ports.journal import Journal
from springtide.ports.sampler import Sampler
from springtide.rollout.episode import Player
from springtide.rollout.renderer import Renderer
from springtide.runtime.admission import Admission
from springtide.runtime.controller import Controller
from springtide.runtime.cost_feed import cost_feeds
from springtide.runtime.dispatch import Dispatch
from springtide.runtime.episodes import Episodes
from springtide.runtime.evaluator import Evaluator
from springtide.runtime.invalid_rate import InvalidRates
from springtide.runtime.monitor import Monitor
from springtide.runtime.observer import Observers
from springtide.runtime.priorities import feeds, rule_of
from springtide.runtime.publication import Publication
from springtide.runtime.readiness import ReadinessFeed
from springtide.runtime.recovery import Recovery
from springtide.runtime.stash import Stash
from springtide.scheduling import retention
from springtide.scheduling.admission import ConcurrencyLaw
from springtide.scheduling.cost_fold import CostFold
from springtide.scheduling.costs import CurrentCosts, ServiceCosts, given
from springtide.scheduling.divergence import DivergenceBudget
from springtide.scheduling.milestones import Milestones
from springtide.scheduling.priority import Priority
from springtide.scheduling.refresh import Refresh
from springtide.scheduling.residency import Residency
from springtide.scheduling.scheduler import Scheduler
from springtide.telemetry.ledger import Ledger
from springtide.telemetry.sink import SinkGroup
from springtide.telemetry.status import StatusBoard
from springtide.training.logprob import Transform
from springtide.training.trainer import TorchTrainer


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a run needs and does not make: time, threads, books, and who watches."""

    clock: Clock
    executor: Executor
    ledger: Ledger
    journal: Journal
    checkpoints: RunCheckpoints
    sinks: SinkGroup
    board: StatusBoard


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """A wired run. Drive it with `controller.run(await recovery.recover())`."""

    scheduler: Scheduler
    controller: Controller
    recovery: Recovery
    monitor: Monitor
    trainer: TorchTrainer


def make_trainer(recipe: Recipe, model: Any) -> TorchTrainer:
    """The trainer of `model`, which it takes over."""
    rollout = recipe.rollout
    return TorchTrainer(
        model,
        config=recipe.training,
        total_steps=recipe.scheduling.steps,
        transform=Transform(temperature=rollout.temperature, top_k=rollout.top_k, top_p=rollout.top_p),
        dtype=_served_dtype(recipe),
        kept_kv=recipe.engine.kv_at_update != "recompute",
    )


def make_engine(recipe: Recipe, trainer: TorchTrainer) -> TorchEngine:
    """The engine of the trainer's model, with a copy of the weights of its own."""
    return TorchEngine(served_copy(trainer.model, _served_dtype(recipe)), recipe.engine, seed=recipe.seed)


def milestones(recipe: Recipe) -> Milestones:
    return Milestones(
        last=recipe.scheduling.steps,
        evaluation_tasks=recipe.evaluation.tasks,
        evaluation_every=recipe.evaluation.every,
        evaluation_tasks_on_the_way=recipe.evaluation.tasks_on_the_way,
        checkpoint_every=recipe.checkpoint.every,
    )


def assemble(
    recipe: Recipe,
    *,
    trainer: TorchTrainer,
    engine: Engine,
    renderer: Renderer,
    source: EnvironmentSource,
    around: Surroundings,
    costs: ServiceCosts | None = None,
    sampler: Callable[[Sampler], Sampler] = unchanged,
) -> Assembly:
    """All parts of a run around its trainer and its engine. Computes nothing: it is called where the loop runs.

    `costs` are the engine's, where the recipe `needs_costs`. Episodes sample through what `sampler` makes of dispatch.
    """
    scheduler = Scheduler(
        recipe.scheduling,
        milestones(recipe),
        retry_backoff=recipe.rollout.retry_backoff,
        score_groups=source.scores_groups,
    )
    stash = Stash()
    fold = None
    if costs is not None and recipe.scheduling.costs == "fitted":
        fold = CostFold(prior(costs))
    current = fold.now if fold is not None else None if costs is None else given(costs)
    rule = rule_of(recipe.scheduling)
    dispatch = _dispatch(recipe, engine, current, around, rule)
    player = Player(sampler=sampler(dispatch), renderer=renderer, config=recipe.rollout, clock=around.clock)
    invalid_rates = InvalidRates(scores_groups=source.scores_groups)
    monitor = Monitor(
        sinks=around.sinks,
        board=around.board,
        ledger=around.ledger,
        clock=around.clock,
        scheduler=scheduler,
        engine_stats=lambda: dispatch.stats,
        kv_trusted=lambda: dispatch.budget is None or dispatch.budget.trusted,
        invalid_rates=invalid_rates,
        success_reward=recipe.evaluation.success_reward,
        stop_tokens=renderer.stop_tokens,
        costs=None if fold is None else fold.now,
    )
    fed = [*feeds(rule, dispatch, scheduler, around.clock.now), *cost_feeds(fold, dispatch, around.executor)]
    observers = Observers([ReadinessFeed(dispatch.readiness, around.clock.now), *fed, monitor])
    controller = _controller(recipe, around, scheduler, trainer, dispatch, stash, observers, player, source)
    if current is not None and recipe.scheduling.admission == "law":
        controller.admission = _admission(_law(recipe, current, engine), dispatch, controller, around)
    recovery = Recovery(
        journal=around.journal,
        checkpoints=around.checkpoints,
        trainer=trainer,
        executor=around.executor,
        scheduler=scheduler,
        stash=stash,
        observers=observers,
        invalid_rates=invalid_rates,
        progress=partial(_show_recovery, around.board),
    )
    return Assembly(scheduler=scheduler, controller=controller, recovery=recovery, monitor=monitor, trainer=trainer)


def _show_recovery(board: StatusBoard, step: int, last: int) -> None:
    board.update(phase="recovering", detail=f"training step {step} of {last} again")


def needs_costs(recipe: Recipe) -> bool:
    """Whether a policy of the run goes by what work takes."""
    return recipe.scheduling.retention != "lru" or recipe.scheduling.admission == "law"


def _dispatch(
    recipe: Recipe, engine: Engine, costs: CurrentCosts | None, around: Surroundings, rule: Priority
) -> Dispatch:
    return Dispatch(
        engines=[engine],
        executor=around.executor,
        clock=around.clock,
        ledger=around.ledger,
        lockstep=recipe.scheduling.mode == "sync",
        decode_steps=recipe.engine.decode_steps,
        residency=partial(_residency, recipe, costs, rule.patience),
        refresh=Refresh(recipe.engine.refresh_chunk) if recipe.engine.kv_at_update == "refresh" else None,
        budget=DivergenceBudget(recipe.engine.divergence_budget),
        priority=rule,
    )


def _admission(law: ConcurrencyLaw, dispatch: Dispatch, controller: Controller, around: Surroundings) -> Admission:
    return Admission(dispatch.readiness, law=law, ranks=lambda: 1, now=around.clock.now, post=controller.post)


def _law(recipe: Recipe, costs: CurrentCosts, engine: Engine) -> ConcurrencyLaw:
    return ConcurrencyLaw(
        costs=costs,
        kv_tokens=engine.capabilities.capacity_tokens,
        host_tokens=recipe.engine.host_capacity_tokens,
        max_batch=recipe.engine.max_batch,
        padding=PADDING,
    )


def _residency(recipe: Recipe, costs: CurrentCosts | None, patience: float, engine: Engine) -> Residency | None:
    policy = None if costs is None else retention.policy(recipe.scheduling.retention, costs)
    if policy is None:
        return None
    return Residency(
        policy,
        capacity=engine.capabilities.capacity_tokens,
        host=recipe.engine.host_capacity_tokens,
        max_batch=recipe.engine.max_batch,
        decode_steps=recipe.engine.decode_steps,
        reserved=reserved,
        shares_prompts=False,
        patience=patience,
    )


def _controller(
    recipe: Recipe,
    around: Surroundings,
    scheduler: Scheduler,
    trainer: TorchTrainer,
    dispatch: Dispatch,
    stash: Stash,
    observers: Observers,
    player: Player,
    source: EnvironmentSource,
) -> Controller:
    evaluator = Evaluator(
        player=player,
        source=source,
        dispatch=dispatch,
        temperature=recipe.evaluation.temperature,
        success_reward=recipe.evaluation.success_reward,
        concurrent=recipe.scheduling.max_concurrent,
        max_attempts=recipe.scheduling.max_attempts,
    )
    publication = Publication(
        trainer=trainer, dispatch=dispatch, executor=around.executor, kv=recipe.engine.kv_at_update
    )
    controller = Controller(
        scheduler=scheduler,
        journal=around.journal,
        executor=around.executor,
        clock=around.clock,
        ledger=around.ledger,
        trainer=trainer,
        dispatch=dispatch,
        publication=publication,
        evaluator=evaluator,
        checkpoints=around.checkpoints,
        stash=stash,
        observers=observers,
    )
    controller.episodes = Episodes(
        player=player,
        source=source,
        dispatch=dispatch,
        clock=around.clock,
        temperature=recipe.rollout.temperature,
        post=controller.post_member,
        fail=controller.fail,
    )
    return controller


def _served_dtype(recipe: Recipe) -> torch.dtype:
    """Of the weights that the engine samples with."""
    dtype = recipe.model.dtype if isinstance(recipe.model, PretrainedModelConfig) else "float32"
    return compute_dtype(dtype, choose_device(recipe.model.device))
