"""Service costs from public figures of a model and an accelerator, by the formulas of the clusters in the package."""

from typing import Literal

from pydantic import Field

from springtide.scheduling.config import StrictModel
from springtide.scheduling.costs import ServiceCosts
from springtide.simulation.cluster import Cluster

PREFILL_USE = 0.5
"""Share of the peak that prefill computes at."""
TRAIN_USE = 0.4
DECODE_USE = 0.85
"""Share of the memory bandwidth that decoding reads at."""
PARALLEL_USE = 0.85
"""What is left of both on a rank of several accelerators."""
ACTIVATIONS = 4e9
PUBLISH_RATE = 50e9
HOST_BYTES = 100e9


class Accelerator(StrictModel):
    """Dense bf16 FLOP/s; bytes per second of memory and to the host; bytes of memory that can be used."""

    flops: float
    bandwidth: float
    memory: float
    host: float = 45e9


ACCELERATORS = {
    "H100": Accelerator(flops=989e12, bandwidth=3.35e12, memory=72e9),
    "H800": Accelerator(flops=989e12, bandwidth=3.35e12, memory=72e9),
    "H20": Accelerator(flops=148e12, bandwidth=4.0e12, memory=86e9),
}
"""Nine tenths of the memory can be used."""


class Model(StrictModel):
    """`active`: parameters per token. `layers`: with attention, of `attention_width` (heads times their size)."""

    parameters: float = Field(gt=0)
    active: float = Field(gt=0)
    weight_bytes: int = Field(ge=1)
    layers: int = Field(ge=1)
    attention_width: int = Field(ge=1)
    kv_bytes: int = Field(ge=1, description="Per token.")


class Hardware(StrictModel):
    """`per_rank` accelerators are one rank. `free_training`: everything but the rollout costs nothing."""

    accelerator: Literal["H100", "H800", "H20"]
    per_rank: int = Field(ge=1)
    ranks: int = Field(ge=2)
    max_batch: int = Field(ge=1)
    micro_batch_tokens: int = Field(ge=1)
    environment_slots: int = Field(ge=1)
    free_training: bool = False


class Slow(StrictModel):
    """By what factor work takes longer than the roofline says."""

    prefill: float = Field(1.0, gt=0)
    all: float = Field(1.0, gt=0)


def cluster(model: Model, hardware: Hardware, slow: Slow) -> Cluster:
    """The modelled cluster."""
    one = ACCELERATORS[hardware.accelerator]
    number = hardware.per_rank
    weights = model.parameters * model.weight_bytes
    room = number * (one.memory - ACTIVATIONS) - weights
    return Cluster(
        name="anchor",
        about=f"{hardware.ranks} ranks of {number} {hardware.accelerator}",
        ranks=hardware.ranks,
        kv_tokens=int(room / model.kv_bytes),
        host_tokens=int(number * HOST_BYTES / model.kv_bytes),
        max_batch=hardware.max_batch,
        environment_slots=hardware.environment_slots,
        micro_batch_tokens=hardware.micro_batch_tokens,
        costs=_costs(model, hardware, slow, weights),
    )


def _costs(model: Model, hardware: Hardware, slow: Slow, weights: float) -> ServiceCosts:
    one = ACCELERATORS[hardware.accelerator]
    number = hardware.per_rank * (PARALLEL_USE if hardware.per_rank > 1 else 1.0)
    compute, reading = number * one.flops, number * one.bandwidth * DECODE_USE
    everything, prefill = slow.all, slow.all * slow.prefill
    forward = 2 * model.active / (TRAIN_USE * compute) * everything
    training = 0.0 if hardware.free_training else 1.0
    sent = weights / hardware.per_rank
    return ServiceCosts(
        prefill_base=0.004 * everything,
        prefill_token=2 * model.active / (PREFILL_USE * compute) * prefill,
        prefill_attention=4 * model.layers * model.attention_width / (PREFILL_USE * compute) * prefill,
        decode_base=weights / reading * everything,
        decode_sequence=2 * model.active / (PREFILL_USE * compute) * everything,
        decode_context=model.kv_bytes / reading * everything,
        reload_base=0.001,
        reload_token=model.kv_bytes / (one.host * hardware.per_rank),
        reference_token=forward * training,
        forward_token=forward * training,
        backward_token=2 * forward * training,
        optimizer=0.5 * training,
        swap=sent / one.host * training,
        publish=(1.0 + sent / PUBLISH_RATE) * training,
        role_switch=5.0,
    )
