"""What happened. Events are journalled before they are applied, and applying them again gives the same state."""

import msgspec

from springtide.scheduling.membership import Membership

CANCELLED = "cancelled"
"""The reason of an episode that was stopped because its group had ended: it says nothing about anybody."""


class RunStarted(msgspec.Struct, frozen=True, tag="run_started"):
    """The first event of every journal. A branch starts from the boundary of its parent's checkpoint."""

    boundary: "Boundary"


class StepFinished(msgspec.Struct, frozen=True, kw_only=True, tag="step_finished"):
    """The optimizer step was applied; `digest` proves the weights it left."""

    step: int
    digest: str
    trained_tokens: int
    zero_advantage_tokens: int = 0


class ProcessStarted(msgspec.Struct, frozen=True, tag="process_started"):
    """A process drives the run from here on. `epoch` numbers the processes of this run, from 0.

    `open_step`: the step that the previous process was training when it died, trained again to its end.
    """

    epoch: int
    open_step: StepFinished | None = None


class MemberFinished(msgspec.Struct, frozen=True, kw_only=True, tag="member_finished"):
    """An episode ended. `reward` is None when its outcome is invalid; `reason` then says why."""

    group: int
    slot: int
    attempt: int
    epoch: int
    reward: float | None
    reason: str = ""


class GroupScored(msgspec.Struct, frozen=True, kw_only=True, tag="group_scored"):
    """The environment has graded a group as a whole: one reward and reason per slot, as in `MemberFinished`."""

    group: int
    epoch: int
    rewards: tuple[float | None, ...]
    reasons: tuple[str, ...]


class Published(msgspec.Struct, frozen=True, tag="published"):
    """The engines serve this version, and proved it."""

    version: int


class CheckpointSaved(msgspec.Struct, frozen=True, tag="checkpoint_saved"):
    step: int


class CheckpointFailed(msgspec.Struct, frozen=True, tag="checkpoint_failed"):
    """The checkpoint could not be written; the run goes on with the older ones."""

    step: int
    reason: str


class EvaluationFinished(msgspec.Struct, frozen=True, kw_only=True, tag="evaluation_finished"):
    """`successes` of `valid` held-out episodes; `invalid` ones stand beside, never inside."""

    version: int
    successes: int
    valid: int
    invalid: int


class DeadlinePassed(msgspec.Struct, frozen=True, tag="deadline_passed"):
    """The group's timer ran out."""

    group: int
    epoch: int


class ConcurrencySet(msgspec.Struct, frozen=True, tag="concurrency_set"):
    """From now on at most so many episodes are in flight; those that are stay."""

    concurrent: int


class RolesSet(msgspec.Struct, frozen=True, tag="roles_set"):
    """From now on `rollout` ranks roll out, and the others train; or all do both in turns (`together`)."""

    rollout: int
    together: bool = False

    def of(self, membership: Membership) -> Membership:
        """What becomes of `membership`."""
        return membership.taking_turns() if self.together else membership.split(self.rollout)


class RankDied(msgspec.Struct, frozen=True, tag="rank_died"):
    """A rank is lost with all that it held. `epoch`: since which it lived; what is said of an earlier life changes
    nothing."""

    rank: int
    epoch: int

    def of(self, membership: Membership) -> Membership:
        """What becomes of `membership`."""
        return membership.died(self.rank) if membership.hears(self.rank, self.epoch) else membership


class RankJoined(msgspec.Struct, frozen=True, tag="rank_joined"):
    """A rank that was dead is there again, and empty."""

    rank: int

    def of(self, membership: Membership) -> Membership:
        """What becomes of `membership`."""
        return membership if membership.lives(self.rank) else membership.joined(self.rank)


class Boundary(msgspec.Struct, frozen=True, kw_only=True):
    """Where the run stands between two steps: what a checkpoint has to say about data to continue from it.

    `reissue` holds (task index, times issued again) of prompts that wait to be issued once more.
    """

    step: int = 0
    next_group: int = 0
    next_task: int = 0
    reissue: tuple[tuple[int, int], ...] = ()


Event = (
    RunStarted
    | ProcessStarted
    | MemberFinished
    | GroupScored
    | StepFinished
    | Published
    | CheckpointSaved
    | CheckpointFailed
    | EvaluationFinished
    | DeadlinePassed
    | ConcurrencySet
    | RolesSet
    | RankDied
    | RankJoined
)
