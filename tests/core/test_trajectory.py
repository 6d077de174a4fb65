from springtide.core.member import Member, Purpose
from springtide.core.outcome import Valid
from springtide.core.segment import Segment
from springtide.core.trajectory import Trajectory

MEMBER = Member(Purpose.TRAIN, 3, 1)


def sampled(tokens, *, parent, version=0, masked=False):
    return Segment(
        tokens=tokens,
        parent=parent,
        sampled=True,
        logprobs=(-0.5,) * len(tokens),
        versions=(version,) * len(tokens),
        masked=masked,
    )


def trajectory(*segments):
    return Trajectory(member=MEMBER, task_id="t", segments=segments, outcome=Valid(reward=1.0))


def test_a_chat_is_one_sample_with_the_environment_masked():
    chat = trajectory(
        Segment(tokens=(1, 2)), sampled((3, 4), parent=0), Segment(tokens=(5,), parent=1), sampled((6,), parent=2)
    )
    (sample,) = chat.samples()
    assert sample.tokens == (1, 2, 3, 4, 5, 6)
    assert sample.mask == (False, False, True, True, False, True)
    assert sample.logprobs == (0.0, 0.0, -0.5, -0.5, 0.0, -0.5)
    assert sample.versions == (-1, -1, 0, 0, -1, 0)
    assert chat.trained_tokens == 3


def test_a_fork_trains_the_shared_turn_once():
    fork = trajectory(
        Segment(tokens=(1,)), sampled((2,), parent=0), sampled((3,), parent=1), sampled((4,), parent=1, version=2)
    )
    first, second = fork.samples()
    assert (first.tokens, first.mask) == ((1, 2, 3), (False, True, True))
    assert (second.tokens, second.mask) == ((1, 2, 4), (False, False, True))
    assert sum(first.mask) + sum(second.mask) == fork.trained_tokens
    assert fork.oldest_version == 0


def test_masked_turns_do_not_age_a_trajectory():
    chat = trajectory(Segment(tokens=(1,)), sampled((2,), parent=0, masked=True), sampled((3,), parent=1, version=4))
    assert chat.oldest_version == 4
    assert chat.trained_tokens == 1


def test_members_are_ordered_by_issue_and_their_names_round_trip():
    early, late = Member(Purpose.TRAIN, 2, 7), Member(Purpose.TRAIN, 3, 0)
    assert early < late
    for member in (early, Member(Purpose.EVALUATE, 0, 0, 2)):
        assert Member.parse(str(member)) == member
