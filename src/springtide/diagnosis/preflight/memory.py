"""How much memory a run takes on each device. An estimate: good for seeing that something cannot fit, not for filling
the last gigabyte.

- Weights, gradients and Adam's moments by parameter, as in ZeRO (arXiv 1910.02054): 16 bytes for mixed precision.
- Activations as in Korthikanti et al. (arXiv 2205.05198) with attention that keeps no score matrix: 34 bytes per token,
  layer and unit of width in 16 bits; with checkpointing 2, and one layer in full.
- KV: two vectors of the KV width for each token and layer.
- Logits: for each token and word of the vocabulary 2 bytes, and 4 each for their float copy and its gradient.
"""

from typing import Literal

import msgspec

from springtide.diagnosis.preflight.plan import Plan
from springtide.diagnosis.preflight.shape import Shape

GIB = float(2**30)

ZERO = "arXiv 1910.02054"
ACTIVATIONS = "arXiv 2205.05198"

LORA_SHARE = 0.02
"""Of the parameters that adapters of rank 64 on all linear layers have, about; other ranks in proportion."""

HEADROOM = 0.95
"""Of a device's memory that a process can have."""


Phase = Literal["always", "training", "sampling"]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """`phase`: when it is there. What is there always is known well; activations depend on how long sequences get."""

    name: str
    phase: Phase
    gib: float
    formula: str
    source: str = ""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """`total_gib`: on each device, at the fuller of the two phases where an engine sleeps while the trainer works, else
    of all parts. `certain_gib`: of what is there always. `left_out`: what could not be estimated."""

    parts: tuple[Part, ...]
    total_gib: float
    certain_gib: float
    parameters: float
    model: str
    left_out: tuple[str, ...] = ()
    device_gib: float | None = None
    estimate: bool = True

    @property
    def fits(self) -> bool | None:
        """None where the device's memory was not given."""
        return None if self.device_gib is None else self.total_gib <= HEADROOM * self.device_gib


def estimate(plan: Plan, shape: Shape, *, device_gib: float | None = None) -> Memory:
    half = _is_half(plan)
    shards = plan.gpus if _is_sharded(plan) else 1
    parts = [*_training(plan, shape, half, shards), *_reference(plan, shape, half, shards)]
    left_out = []
    if shape.known:
        parts += _activations(plan, shape, half)
        parts += _engine(plan, shape, half, device_gib)
    else:
        left_out.append("activations, logits and KV: give the model's folder, or name a common model, for its shape")
    always, training, sampling = (
        sum(part.gib for part in parts if part.phase == phase) for phase in ("always", "training", "sampling")
    )
    in_turns = plan.framework == "verl" or plan.truth("engine_sleeps")
    return Memory(
        parts=tuple(parts),
        total_gib=always + (max(training, sampling) if in_turns else training + sampling),
        certain_gib=always,
        parameters=shape.parameters,
        model=shape.found,
        left_out=tuple(left_out),
        device_gib=device_gib,
    )


def _training(plan: Plan, shape: Shape, half: bool, shards: int) -> list[Part]:
    size = shape.parameters
    rank = lora_rank(plan)
    if rank:
        share = LORA_SHARE * rank / 64
        weight = 0.5 if plan.truth("four_bit") else 2 if half else 4
        return [
            _part("weights", size * weight / shards, f"{weight:g} bytes x {size / 1e9:.2f}e9 / {shards}", ZERO),
            _part(
                "adapters with gradients and Adam", size * share * 16 / shards, f"16 bytes x {share:.1%} of it", ZERO
            ),
        ]
    weight = 2 if half else 4
    copies = [
        _part("weights", size * weight / shards, f"{weight} bytes x {size / 1e9:.2f}e9 / {shards}", ZERO),
        _part("gradients", size * weight / shards, f"{weight} bytes each", ZERO),
    ]
    if plan.truth("optimizer_offload"):
        return copies
    master = 12 if half and not _updates_in_half(plan) else 8 if not half else 4
    formula = {12: "4 bytes of master weights + 8 of moments", 8: "8 bytes of moments", 4: "moments in 16 bits"}[master]
    return [*copies, _part("Adam", size * master / shards, formula, ZERO)]


def _reference(plan: Plan, shape: Shape, half: bool, shards: int) -> list[Part]:
    """A second copy of the weights, where a KL is taken; adapters are switched off instead."""
    loaded = (plan.number("kl_coefficient") or 0) > 0
    if plan.framework == "verl":
        loaded = plan.truth("kl_in_loss") or plan.truth("kl_in_reward")
    if not loaded or lora_rank(plan):
        return []
    weight = 2 if half else 4
    return [_part("reference weights", shape.parameters * weight / shards, f"{weight} bytes each")]


def _activations(plan: Plan, shape: Shape, half: bool) -> list[Part]:
    tokens = micro_batch_tokens(plan)
    if tokens is None:
        return []
    wide = 1 if half else 2
    layer = 34 * shape.hidden * tokens * wide
    if plan.truth("gradient_checkpointing"):
        kept, formula = 2 * shape.hidden * tokens * wide * shape.layers + layer, "2 bytes x width x layers, one in full"
    else:
        kept, formula = layer * shape.layers, "34 bytes x width x layers"
    logits = tokens * shape.vocabulary * 10
    return [
        _part("activations", kept, f"{tokens:,} tokens x {formula}", ACTIVATIONS, phase="training"),
        _part("logits", logits, f"{tokens:,} tokens x {shape.vocabulary:,} words x 10 bytes", phase="training"),
    ]


def _engine(plan: Plan, shape: Shape, half: bool, device_gib: float | None) -> list[Part]:
    """KV and the engine's own weights; an engine that is told to takes a share of the device whatever it needs."""
    share = plan.number("engine_memory")
    together = plan.framework == "verl" or (plan.truth("use_vllm") and plan.text("engine_mode") == "colocate")
    if together and share is not None and device_gib is not None:
        text = f"{share:g} of the device, for the engine's weights and KV"
        return [_part("engine", share * device_gib * GIB, text, phase="sampling")]
    token = 2 * shape.layers * shape.kv_width * (2 if half else 4)
    tokens = engine_tokens(plan)
    if tokens is None:
        return []
    parts = [_part("KV", token * tokens, f"{tokens:,} tokens x {token:,} bytes", phase="sampling")]
    if together or plan.framework == "springtide":
        weight = 2 if half else 4
        parallel = max(1, plan.whole("engine_parallel") or 1)
        size = shape.parameters * weight / parallel
        parts.append(_part("engine's weights", size, f"{weight} bytes each / {parallel}", phase="sampling"))
    return parts


def micro_batch_tokens(plan: Plan) -> int | None:
    """Tokens that go through the model together; None where nothing says."""
    longest = (plan.number("max_prompt") or 0) + (plan.number("max_completion") or 0)
    if plan.framework == "springtide" or (plan.framework == "verl" and plan.truth("dynamic_batch")):
        return plan.whole("micro_batch_tokens")
    rows = plan.number("micro_batch" if plan.framework == "verl" else "per_device_batch")
    return None if rows is None or not longest else int(rows * longest)


def engine_tokens(plan: Plan) -> int | None:
    """Tokens whose KV is held at once, if all completions of a step are sampled together."""
    if plan.framework == "springtide":
        return plan.whole("engine_tokens")
    longest = (plan.number("max_prompt") or 0) + (plan.number("max_completion") or 0)
    groups = plan.number("groups_per_step")
    if plan.framework == "trl":
        completions = (plan.number("per_device_batch") or 0) * (plan.number("accumulation") or 1)
    else:
        completions = (groups or 0) * (plan.number("group_size") or 1) / plan.gpus
    return int(completions * longest) or None


def lora_rank(plan: Plan) -> float:
    if plan.framework == "trl" and plan.values.get("use_lora") is False:
        return 0.0
    return plan.number("lora_rank") or 0.0


def _is_half(plan: Plan) -> bool:
    if plan.framework == "springtide":
        return plan.text("dtype") == "bfloat16" or (
            plan.text("model_type") == "pretrained" and plan.text("dtype") == "auto"
        )
    if plan.framework == "trl":
        return plan.truth("bf16") or "16" in plan.text("dtype")
    return True


def _updates_in_half(plan: Plan) -> bool:
    """The weights themselves are in 16 bits, and so are Adam's moments: no float copy is kept."""
    return plan.framework == "trl" and "16" in plan.text("dtype") and "dtype" in plan.given


def _is_sharded(plan: Plan) -> bool:
    return plan.framework == "verl" or bool(plan.values.get("sharding"))


def _part(name: str, size: float, formula: str, source: str = "", *, phase: Phase = "always") -> Part:
    return Part(name=name, phase=phase, gib=size / GIB, formula=formula, source=source)
