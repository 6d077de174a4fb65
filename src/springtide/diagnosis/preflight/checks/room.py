"""A run that cannot fit, or an engine that is given more than there is."""

from collections.abc import Iterator

from springtide.diagnosis.preflight.finding import Finding, found
from springtide.diagnosis.preflight.memory import HEADROOM, Memory
from springtide.diagnosis.preflight.plan import Plan
from springtide.diagnosis.verdict import Verdict


def check(plan: Plan, memory: Memory) -> Iterator[Finding]:
    if memory.device_gib is None or memory.fits:
        return
    certain = memory.certain_gib > HEADROOM * memory.device_gib
    parts = [part for part in memory.parts if part.phase == "always" or not certain]
    largest = max(parts, key=lambda part: part.gib)
    yield found(
        plan,
        "S58",
        Verdict.SICK if certain else Verdict.WATCH,
        _field(largest.name, plan),
        f"An estimated {memory.total_gib:.0f} GiB are needed on a device of {memory.device_gib:.0f} GiB, most of it "
        f"for {largest.name} ({largest.gib:.0f} GiB)"
        + ("." if certain else ", if all sequences are as long as they may be."),
        _remedy(largest.name, plan),
        source="the estimate of memory below",
    )


def _field(part: str, plan: Plan) -> str:
    if part in ("activations", "logits"):
        return "per_device_batch" if plan.framework == "trl" else "micro_batch_tokens"
    if part in ("KV", "engine", "engine's weights"):
        return "engine_tokens" if plan.framework == "springtide" else "engine_memory"
    return "model"


def _remedy(part: str, plan: Plan) -> str:
    if part in ("activations", "logits"):
        smaller = "a smaller micro-batch with more accumulation"
        return smaller if plan.truth("gradient_checkpointing") else f"gradient checkpointing, or {smaller}"
    if part in ("KV", "engine", "engine's weights"):
        return "give the engine less"
    return "adapters (LoRA), sharding over more devices, an optimizer in host memory, or a smaller model"
