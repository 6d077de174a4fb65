"""What a step's groups say by themselves, by hand."""

import pytest

from springtide.core.group import Group
from springtide.core.member import Member, Purpose
from springtide.core.outcome import Invalid, InvalidCause, Valid
from springtide.core.segment import Segment
from springtide.core.trajectory import Trajectory
from springtide.runtime.group_metrics import completion_metrics, signal_metrics
from springtide.telemetry.names import describe

STOP = 0
DIED = Invalid(cause=InvalidCause.INFRASTRUCTURE, detail="the box died")


def member(slot, *turns, reward=1.0):
    """An episode of these sampled turns; None is without a verdict."""
    segments = [Segment(tokens=(9,))]
    for tokens in turns:
        zeros = {"logprobs": (0.0,) * len(tokens), "versions": (0,) * len(tokens)}
        segments.append(Segment(tokens=tokens, parent=len(segments) - 1, sampled=True, **zeros))
        segments.append(Segment(tokens=(8,), parent=len(segments) - 1))
    outcome = DIED if reward is None else Valid(reward=reward)
    return Trajectory(
        member=Member(Purpose.TRAIN, 0, slot), task_id="t", segments=tuple(segments), outcome=outcome, turns=len(turns)
    )


def group(*members):
    return Group(id=0, base_version=0, members=members)


def rewarded(*rewards):
    return group(*(member(slot, (1, STOP), reward=reward) for slot, reward in enumerate(rewards)))


def test_groups_are_told_apart_by_where_they_stand_and_invalid_members_have_no_say():
    groups = [rewarded(1.0, 1.0, None), rewarded(0.0, 0.0), rewarded(1.0, 0.0), rewarded(0.5, 0.0)]
    found = signal_metrics(groups, success_reward=1.0)
    assert found["groups/all_right"] == pytest.approx(1 / 4)
    assert found["groups/all_wrong"] == pytest.approx(2 / 4)
    assert found["reward/std"] == pytest.approx((0.0 + 0.0 + 0.5**0.5 + 0.125**0.5) / 4)


def test_a_step_without_any_verdict_claims_no_share():
    assert signal_metrics([rewarded(None, None)], success_reward=1.0) == {}
    assert completion_metrics([rewarded(None, None)], {STOP}) == {}


def test_a_turn_is_cut_off_where_no_stop_token_ends_it():
    groups = [group(member(0, (1, STOP), (1, 2, 3)), member(1, (1, 2, 3, 4, 5, STOP), (STOP,), (7, 7), reward=None))]
    found = completion_metrics(groups, {STOP})
    assert found["completion/truncated"] == pytest.approx(1 / 2)
    assert found["completion/terminated_length"] == 2.0
    assert (found["completion/length"], found["completion/length_min"], found["completion/length_max"]) == (2.5, 2, 3)


def test_a_turn_that_went_past_a_stop_token_was_cut_off_somewhere_else():
    found = completion_metrics([group(member(0, (1, STOP, 1, STOP)), member(1, (1, STOP)))], {STOP})
    assert found["completion/truncated"] == pytest.approx(1 / 2)
    assert found["completion/terminated_length"] == 2.0


def test_nothing_is_said_of_ends_that_are_not_known():
    found = completion_metrics([rewarded(1.0, 0.0)], ())
    assert "completion/truncated" not in found
    assert "completion/terminated_length" not in completion_metrics([group(member(0, (1, 1)))], {STOP})


def test_episodes_of_a_group_that_say_the_same_count_once():
    alike = group(member(0, (1, STOP), (2, STOP)), member(1, (1, STOP), (2, STOP)), member(2, (1, STOP), (2, 2, STOP)))
    different = group(member(0, (1,)), member(1, (2,)))
    assert completion_metrics([alike, different], ())["completion/unique"] == pytest.approx((2 / 3 + 1) / 2)


def test_every_name_is_canonical():
    groups = [rewarded(1.0, 0.0)]
    names = {**signal_metrics(groups, 1.0), **completion_metrics(groups, {STOP})}
    assert [name for name in names if describe(name) is None] == []
