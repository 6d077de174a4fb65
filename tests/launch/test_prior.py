"""Where costs begin that are fitted in a real run."""

import pytest

from springtide.launch.prior import prior
from springtide.scheduling.costs import ServiceCosts

NOTHING = dict.fromkeys(ServiceCosts.model_fields, 0.0)


def test_what_was_measured_stays_and_training_is_guessed_from_it():
    measured = ServiceCosts(
        **(
            NOTHING
            | {"decode_base": 0.01, "decode_sequence": 0.001, "decode_context": 1e-6, "prefill_token": 0.0005}
            | {"prefill_attention": 1e-7, "prefill_base": 0.002, "visit": 0.003, "join": 0.004, "turn": 0.005}
            | {"reload_base": 0.001, "reload_token": 1e-6}
        )
    )
    found = prior(measured)
    assert {name: value for name, value in measured.model_dump().items() if value} == {
        name: getattr(found, name) for name, value in measured.model_dump().items() if value
    }
    assert found.forward_token == found.reference_token == 0.0005
    assert found.backward_token == 0.001
    assert found.training_attention == pytest.approx(1e-7 / 0.0005)
    assert min(found.optimizer, found.publish) > 0
    assert (found.swap, found.role_switch) == (0, 0), "nothing of the kind happens in one process"


def test_what_noise_has_made_nothing_can_be_learned_again():
    found = prior(ServiceCosts(**(NOTHING | {"decode_base": 0.01})))
    assert all(value > 0 for name, value in found.model_dump().items() if name not in ("swap", "role_switch"))
