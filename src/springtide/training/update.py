"""One train step as a row of named stages (stages.py). `run_update` only moves values from stage to stage."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from springtide.core.group import Group
from springtide.training.advantages import group_advantages
from springtide.training.batch import Batch, Row, split_by_groups
from springtide.training.logprob import Logprobs
from springtide.training.loss import LossInputs
from springtide.training.metrics import Tally
from springtide.training.packing import MicroBatch, pack
from springtide.training.reference import ReferencePolicy
from springtide.training.stages import Stages


@dataclass(frozen=True, kw_only=True)
class UpdatePlan:
    """What an update needs besides its stages. `version` is that of the weights it starts from.

    `stored_proximal`: tokens sampled from this very version take their stored log-probs as proximal ones, which saves
    a forward pass where the engine and the trainer compute alike: in the same precision, over keys and values of the
    same version. `coupled`: the proximal policy is the behaviour policy (no importance weight). `share_prefixes`: the
    model can compute a common beginning once.
    """

    mini_batches: int
    tokens_per_micro_batch: int
    version: int
    needs_reference: bool
    stored_proximal: bool
    coupled: bool
    share_prefixes: bool


def run_update(
    groups: tuple[Group, ...], *, stages: Stages, model: Any, reference: ReferencePolicy | None, plan: UpdatePlan
) -> tuple[Batch, Tally]:
    """Apply one train step to `model` in place: one optimizer update per mini-batch that carries any gradient."""
    batch = stages.advantage(stages.mask(stages.tokens(groups)))
    device = next(model.parameters()).device
    parts = split_by_groups(batch.rows, groups=len(groups), parts=plan.mini_batches)
    budget, share = plan.tokens_per_micro_batch, plan.share_prefixes
    moving = [_moving(part, plan) for part in parts]
    packed = [pack(rows, budget=budget, device=device, share=share) for rows in moving]
    proximals = [_proximals(micros, stages, model, plan, first=i == 0) for i, micros in enumerate(packed)]
    tally = Tally(device)
    for number, (part, rows, micros, fixed) in enumerate(zip(parts, moving, packed, proximals, strict=True)):
        denominator = sum(row.trained_tokens for row in part)
        for micro, proximal in zip(micros, fixed, strict=True):
            current = stages.logprob(model, micro)
            anchor = None if reference is None else reference.logprobs(micro, rows, groups, stages)
            terms = stages.loss(_loss_inputs(micro, current=current, proximal=proximal, reference=anchor))
            (terms.total / denominator).backward()  # type: ignore[no-untyped-call]
            tally.add_tokens(terms, current, micro, share=1.0 / (denominator * len(parts)))
            if number == 0:
                tally.add_mismatch(current, micro)
        if micros:
            tally.add_step(stages.step(), tokens=denominator)
    return batch, tally


def assign_advantages(batch: Batch, *, normalize_std: bool) -> Batch:
    """Every row gets its member's group-relative advantage."""
    advantages = [group_advantages(rewards, normalize_std=normalize_std) for rewards in batch.rewards]
    rows = tuple(replace(row, advantage=advantages[row.group][row.member]) for row in batch.rows)
    return replace(batch, rows=rows)


def confine_mask(batch: Batch) -> Batch:
    """Only tokens that a policy sampled, and that something precedes, are trained on."""
    rows = []
    for row in batch.rows:
        mask = row.mask & (row.versions >= 0)
        mask[:1] = False
        rows.append(replace(row, mask=mask))
    return replace(batch, rows=tuple(rows))


def _moving(rows: tuple[Row, ...], plan: UpdatePlan) -> list[Row]:
    """Rows that can move the weights. With no KL term a row of advantage 0 has exactly zero gradient; it still counts
    in the denominator."""
    return [row for row in rows if plan.needs_reference or row.advantage != 0.0]


def _proximals(
    micros: list[MicroBatch], stages: Stages, model: Any, plan: UpdatePlan, *, first: bool
) -> list[Logprobs | None]:
    """Log-probs under the weights at the start of the step. None: those of the forward pass that trains, detached,
    which are the same before the first optimizer update."""
    if plan.coupled:
        return [_as_stored(micro) for micro in micros]
    if first:
        return [None] * len(micros)
    with torch.no_grad():
        return [_as_stored(m) if _is_fresh(m, plan) else stages.logprob(model, m) for m in micros]


def _is_fresh(micro: MicroBatch, plan: UpdatePlan) -> bool:
    return plan.stored_proximal and bool((micro.versions == plan.version).all())


def _as_stored(micro: MicroBatch) -> Logprobs:
    everywhere = torch.ones_like(micro.behaviour, dtype=torch.bool)
    return Logprobs(values=micro.behaviour, entropy=torch.zeros_like(micro.behaviour), inside=everywhere)


def _loss_inputs(
    micro: MicroBatch, *, current: Logprobs, proximal: Logprobs | None, reference: Logprobs | None
) -> LossInputs:
    inside = current.inside
    for other in (proximal, reference):
        inside = inside if other is None else inside & other.inside
    return LossInputs(
        current=current.values,
        proximal=current.values.detach() if proximal is None else proximal.values,
        behaviour=micro.behaviour,
        advantages=micro.advantages,
        inside=inside,
        reference=None if reference is None else reference.values,
    )
