"""What was decided. Commands are idempotent and journalled before they are executed."""

import msgspec

from springtide.scheduling.events import Boundary
from springtide.scheduling.membership import Membership


class IssueGroup(msgspec.Struct, frozen=True, kw_only=True, tag="issue_group"):
    """A group exists from now on; each of its slots will end exactly once."""

    group: int
    task: int
    base_version: int
    size: int
    reissue: int = 0


class StartMember(msgspec.Struct, frozen=True, kw_only=True, tag="start_member"):
    """Play one episode, after `delay` seconds."""

    group: int
    slot: int
    attempt: int
    task: int
    epoch: int
    delay: float = 0.0


class ScoreGroup(msgspec.Struct, frozen=True, tag="score_group"):
    """Let the environment grade the members of a group with sight of all; answer with `GroupScored`."""

    group: int
    epoch: int


class CancelGroup(msgspec.Struct, frozen=True, tag="cancel_group"):
    """Stop what still runs for an expired group."""

    group: int


class SetDeadline(msgspec.Struct, frozen=True, kw_only=True, tag="set_deadline"):
    """Answer with `DeadlinePassed` after `seconds`."""

    group: int
    epoch: int
    seconds: float


class Prepare(msgspec.Struct, frozen=True, kw_only=True, tag="prepare"):
    """Group `group` is complete and will be in step `step`: do ahead what can be done ahead (async)."""

    step: int
    group: int


class MoveRanks(msgspec.Struct, frozen=True, tag="move_ranks"):
    """Let ranks do what `membership` says: those that change end their work first, those that are dead are given up."""

    membership: Membership


class Train(msgspec.Struct, frozen=True, kw_only=True, tag="train"):
    """Apply step `step` on these groups, in this order. `boundary` is where the run stands afterwards."""

    step: int
    groups: tuple[int, ...]
    boundary: Boundary


class Publish(msgspec.Struct, frozen=True, tag="publish"):
    """Hand the trainer's version to the engines."""

    version: int


class SaveCheckpoint(msgspec.Struct, frozen=True, tag="save_checkpoint"):
    step: int
    boundary: Boundary


class Evaluate(msgspec.Struct, frozen=True, kw_only=True, tag="evaluate"):
    """Play `tasks` held-out episodes with the served version."""

    version: int
    tasks: int


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """All steps are trained, published, saved and evaluated."""


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Going on would only burn compute; `reason` is one clear sentence."""

    reason: str

    @classmethod
    def hopeless(cls, groups: int, failure: str) -> "Abort":
        """`groups` in a row failed, the last one because of `failure`."""
        return cls(
            f"The last {groups} groups all failed; the last failure: {failure.rstrip('.')}; read an episode with "
            "`springtide show RUN`, mend the environment and resume, or, where it only takes longer, branch with "
            "--from STEP and a larger scheduling.group_deadline."
        )

    @classmethod
    def too_few(cls, membership: Membership) -> "Abort":
        """A role has no rank, and none can be spared for it."""
        role = "train" if membership.rollout else "roll out"
        return cls(
            f"{membership.alive} of {len(membership.since)} ranks are left, and none of them can {role}; bring ranks "
            "back and resume."
        )


Command = (
    IssueGroup
    | StartMember
    | ScoreGroup
    | CancelGroup
    | SetDeadline
    | Prepare
    | MoveRanks
    | Train
    | Publish
    | SaveCheckpoint
    | Evaluate
    | Finish
    | Abort
)
