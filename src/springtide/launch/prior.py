"""What the policies of a real run take work to cost before it has begun."""

from springtide.scheduling.costs import ServiceCosts
from springtide.training.calibration import PASSES, REFERENCE

LEAST = {
    "prefill_base": 0.05,
    "prefill_token": 5e-3,
    "prefill_attention": 1e-7,
    "decode_sequence": 5e-3,
    "decode_context": 5e-6,
    "visit": 0.05,
    "join": 0.05,
    "turn": 0.01,
    "reload_base": 0.01,
    "reload_token": 1e-5,
}
"""In decode steps of an empty batch: what a cost is taken to be at least. Measured on a busy host it may come out as
nothing, and a fit takes nothing for granted. About half of the least that clusters and embedded engines have."""

UPDATE, PUBLICATION = 20, 5
"""Decode steps, each of which reads all weights once, that an update of the optimizer and a publication take."""


def prior(measured: ServiceCosts) -> ServiceCosts:
    """`measured` costs of an engine, with guesses in the place of what was not measured: a forward pass of training
    takes what prefill does. Nothing is swapped, and no rank changes its role."""
    step = measured.decode_base
    found = {name: max(getattr(measured, name), share * step) for name, share in LEAST.items()}
    token = found["prefill_token"]
    found |= {name: share * token for name, share in (PASSES | REFERENCE).items()}
    found |= {"training_attention": found["prefill_attention"] / token}
    found |= {"optimizer": UPDATE * step, "publish": PUBLICATION * step}
    return measured.model_copy(update=found)
