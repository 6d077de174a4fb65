"""Each check of the invariants can fail: a bug is planted, and the check that is there for it finds it."""

import math

import msgspec
import pytest

from simulation.faulty import play
from simulation.invariants import ViolationError
from simulation.test_invariants import (
    check_that_batches_do_not_depend_on_the_pipelining,
    check_that_tokens_do_not_depend_on_the_way,
    moving,
    play_all,
)
from springtide.ports.engine import HandedOver
from springtide.runtime.crew import Crew
from springtide.runtime.dispatch import Dispatch
from springtide.runtime.mover import Mover
from springtide.runtime.rank import Rank
from springtide.runtime.stash import Stash
from springtide.runtime.train_lane import TrainLane
from springtide.scheduling.commands import Train
from springtide.scheduling.consumption import Places
from springtide.scheduling.live_group import LiveGroup
from springtide.scheduling.membership import Membership
from springtide.scheduling.residency import Residency
from springtide.scheduling.scheduler import Scheduler
from springtide.simulation.engine import ModelledEngine
from springtide.simulation.kv import KvMemory
from springtide.simulation.trainer import ModelledTrainer

CASES = 150
"""That are tried before a bug counts as not found."""


def around(cls, name):
    """A planted bug that changes what the method `name` of `cls` does: `plant(original)` makes the new one."""

    def decorate(plant):
        def put(monkeypatch):
            monkeypatch.setattr(cls, name, plant(getattr(cls, name)))

        put.__name__ = plant.__name__
        return put

    return decorate


@around(Scheduler, "_member_finished")
def a_late_attempt_is_accepted(original):
    def finished(self, event):
        group = self.groups.get(event.group)
        if group is None or not group.slots[event.slot].running:
            return original(self, event)
        attempt = group.slots[event.slot].attempt
        return original(self, msgspec.structs.replace(event, attempt=attempt, epoch=self.epoch))

    return finished


def a_late_attempt_gets_through(monkeypatch):
    a_late_attempt_is_accepted(monkeypatch)
    strict = Scheduler.expects

    def gullible(self, event):
        playing = any(key[:2] == (event.group, event.slot) for key in self.in_flight)
        return strict(self, event) or (playing and event.group in self.groups)

    monkeypatch.setattr(Scheduler, "expects", gullible)


@around(Scheduler, "on")
def the_last_batch_is_trained_again(original):
    def on(self, event):
        commands = original(self, event)
        for place, command in enumerate(commands):
            if isinstance(command, Train):
                before, self.before = getattr(self, "before", command.groups), command.groups
                commands[place] = msgspec.structs.replace(command, groups=before)
        return commands

    return on


@around(LiveGroup, "ends")
def an_end_is_lost(original):
    return lambda self, end, reason, *, step: original(self, end, reason, step=step)[1:]


@around(LiveGroup, "ends")
def an_end_is_recorded_twice(original):
    return lambda self, end, reason, *, step: 2 * original(self, end, reason, step=step)


@around(Stash, "peek")
def a_member_is_left_out(original):
    def peek(self, group):
        whole = original(self, group)
        return msgspec.structs.replace(whole, members=whole.members[1:])

    return peek


@around(Places, "full")
def a_step_begins_before_it_is_full(original):
    def full(self, step):
        if step == self.filling and self.taken:
            self.filling, self.taken, self.edge = self.filling + 1, 0, None
        return original(self, step)

    return full


@around(Places, "fill")
def nobody_is_mandatory(original):
    def fill(self, groups):
        self.staleness = 10**9
        return original(self, groups)

    return fill


@around(Places, "_in_window")
def there_is_no_window(original):
    return lambda self, group, groups: True


@around(ModelledEngine, "load_weights")
def running_turns_keep_their_version(original):
    def load(self, *, number, weights, kv):
        kept = {member: running.version for member, running in self._batch.items()}
        proof = original(self, number=number, weights=weights, kv=kv)
        for member, running in self._batch.items():
            running.version = kept[member]
        return proof

    return load


@around(ModelledEngine, "_interrupt")
def an_interrupted_turn_loses_its_tokens(original):
    def interrupt(self, member):
        request = original(self, member)
        self._partial.pop(member)
        return request

    return interrupt


@around(KvMemory, "drop_all")
def kv_survives_an_update(original):
    return lambda self: None


@around(ModelledEngine, "_is_outdated")
def no_kv_is_too_old(original):
    return lambda self, session: False


@around(KvMemory, "has_prompt")
def a_refresh_copies_from_any_version(original):
    return lambda self, member, *, prefix, version: member.group in self._groups


@around(Rank, "_ready")
def kv_is_refreshed_before_turns_that_are_ready(original):
    return lambda self: original(self) and not self._may_refresh()


@around(KvMemory, "shared")
def a_prompt_of_any_version_will_do(original):
    return lambda self, member, *, prefix, shared, version: shared


@around(KvMemory, "make_room")
def there_is_always_room(original):
    return lambda self, tokens, *, to, keep=None: True


@around(KvMemory, "move")
def host_memory_has_no_end(original):
    def move(self, session, to):
        host, self.host = self.host, 10**9
        original(self, session, to)
        self.host = host

    return move


@around(KvMemory, "_leave_device")
def tokens_leave_unbooked(original):
    def leave(self, session):
        original(self, session)
        self.hot += 1

    return leave


@around(Residency, "_insist")
def nobody_insists(original):
    return lambda self, plan, now: None


@around(Dispatch, "roll_out_on")
def a_rank_that_leaves_drops_its_turns(original):
    def roll_out_on(self, ranks):
        leaving = original(self, ranks)
        for member in self._pending:
            if self._homes.get(member) in leaving:
                self._ranks[self._homes[member]].cancel(member)
        return leaving

    return roll_out_on


@around(Dispatch, "_deliver")
def a_turn_is_not_delivered(original):
    return lambda self, number, epoch, finished: original(self, number, epoch, finished[1:])


def answered(self, turn):
    self._pending.pop(turn.member).future.set_result(turn.sampled)


@around(Dispatch, "_deliver")
def the_dead_answer(original):
    def deliver(self, number, epoch, finished):
        for turn in finished:
            if turn.member in self._pending and self._pending[turn.member].request.turn == turn.turn:
                answered(self, turn)

    return deliver


@around(Dispatch, "_deliver")
def an_answer_counts_for_any_turn(original):
    def deliver(self, number, epoch, finished):
        for turn in finished:
            if turn.member in self._pending and self._crew.membership.hears(number, epoch):
                answered(self, turn)

    return deliver


@around(Dispatch, "_move")
def turns_of_a_dead_rank_are_forgotten(original):
    return lambda self, partings: original(self, [parting._replace(request=None) for parting in partings])


@around(Crew, "bury")
def a_dead_rank_works_on(original):
    return lambda self, number: self.ranks[number].bury()


@around(TrainLane, "hold")
def a_step_that_lost_a_rank_counts(original):
    return lambda self: self._ready.clear()


@around(Mover, "_bury")
def a_dead_rank_trains_on(original):
    def bury(self, rank):
        training = dict(self._training)
        original(self, rank)
        self._training = training

    return bury


@around(Rank, "drained")
def a_rank_trains_before_its_turns_have_ended(original):
    async def drained(self):
        pass

    return drained


@around(Dispatch, "pause")
def ranks_that_take_turns_roll_out_all_the_time(original):
    async def pause(self):
        pass

    return pause


@around(Dispatch, "resume")
def ranks_that_take_turns_train_and_never_go_on(original):
    return lambda self: None


@around(ModelledEngine, "suspend")
def a_suspended_turn_is_forgotten(original):
    def suspend(self):
        self._batch.clear()
        original(self)

    return suspend


@around(Rank, "_partings")
def kv_leaves_under_a_running_turn(original):
    def partings(self, stays, withdrawn, finished, now):
        return original(self, stays._replace(running=frozenset()), withdrawn, finished, now)

    return partings


@around(Rank, "_ended")
def a_turn_that_comes_while_its_episode_moves_is_lost(original):
    def ended(self, finished, partings):
        leaving = [parting.member for parting in partings]
        self._late = [request for request in self._late if request.member not in leaving]
        original(self, finished, partings)

    return ended


@around(KvMemory, "hand_over")
def kv_moves_and_stays(original):
    def hand_over(self, member):
        session = self.get(member)
        return None if session is None else HandedOver(tokens=session.kv, session=(session.common, session.versions))

    return hand_over


@around(Crew, "bring_up")
def a_rank_that_comes_back_serves_what_it_had(original):
    async def bring_up(self, number, now):
        pass

    return bring_up


@around(Dispatch, "load")
def nobody_looks_at_the_proof(original):
    async def load(self, *, expected, weights, kv):
        await original(self, expected=expected, weights=weights, kv=kv)
        return expected

    return load


@around(Dispatch, "_late")
def a_hung_rank_is_waited_for(original):
    return lambda self, rank: None


@around(Membership, "died")
def nobody_takes_over_for_the_last_of_a_role(original):
    return lambda self, rank: msgspec.structs.replace(
        self,
        rollout=tuple(other for other in self.rollout if other != rank),
        training=tuple(other for other in self.training if other != rank),
        since=tuple(-1 if other == rank else since for other, since in enumerate(self.since)),
        epoch=self.epoch + 1,
    )


@around(ModelledEngine, "_turn_away")
def a_turn_gets_lost_in_the_engine(original):
    def turn_away(self, member):
        request = original(self, member)
        self._queue.clear()
        return request

    return turn_away


@around(Scheduler, "_start_members")
def one_too_many_is_started(original):
    def start(self):
        self.concurrent += 1
        yield from original(self)
        self.concurrent -= 1

    return start


@around(Residency, "plan")
def a_running_session_is_demoted(original):
    def plan(self, now, hot_tokens):
        running = [member for member, session in self._sessions.items() if session.state == "running"]
        made = original(self, now, hot_tokens)
        made.demote += [(member, "cold") for member in running]
        return made

    return plan


@around(Scheduler, "_fill_steps")
def places_are_given_when_the_trainer_is_free(original):
    def fill(self):
        if not self.training:
            yield from original(self)

    return fill


@around(ModelledTrainer, "_pipelined")
def pipelined_steps_take_longer(original):
    def pipelined(self, pipeline, groups):
        spent = original(self, pipeline, groups)
        return spent | {"actor": spent["actor"] + 200.0}

    return pipelined


@around(ModelledEngine, "_enter")
def a_turn_without_kv_says_more(original):
    def enter(self, request, kv):
        longer = math.ceil(1.5 * request.output) if not kv and request.reusable else request.output
        return original(self, msgspec.structs.replace(request, output=longer), kv)

    return enter


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (a_late_attempt_gets_through, "I1|I8"),
        (the_last_batch_is_trained_again, "I1"),
        (an_end_is_lost, "I1"),
        (an_end_is_recorded_twice, "I1"),
        (a_member_is_left_out, "I2"),
        (a_step_begins_before_it_is_full, "I2"),
        (nobody_is_mandatory, "I3"),
        (running_turns_keep_their_version, "I4"),
        (an_interrupted_turn_loses_its_tokens, "I4"),
        (kv_survives_an_update, "I5"),
        (a_prompt_of_any_version_will_do, "I5"),
        (no_kv_is_too_old, "I5"),
        (a_refresh_copies_from_any_version, "I5"),
        (kv_is_refreshed_before_turns_that_are_ready, "I8"),
        (there_is_always_room, "I7"),
        (host_memory_has_no_end, "I7"),
        (tokens_leave_unbooked, "I7"),
        (nobody_insists, "I8"),
        (a_rank_that_leaves_drops_its_turns, "I8"),
        (the_dead_answer, "I1"),
        (an_answer_counts_for_any_turn, "I4"),
        (turns_of_a_dead_rank_are_forgotten, "I8"),
        (a_dead_rank_works_on, "I8"),
        (a_step_that_lost_a_rank_counts, "I2"),
        (a_dead_rank_trains_on, "I6"),
        (a_rank_trains_before_its_turns_have_ended, "I6"),
        (ranks_that_take_turns_roll_out_all_the_time, "I6"),
        (ranks_that_take_turns_train_and_never_go_on, "I8"),
        (a_suspended_turn_is_forgotten, "I7|I8|I4"),
        (kv_leaves_under_a_running_turn, "I10"),
        (kv_moves_and_stays, "I7"),
        (a_rank_that_comes_back_serves_what_it_had, "I3|I4"),
        (nobody_looks_at_the_proof, "I5"),
        (a_hung_rank_is_waited_for, "I8"),
        (nobody_takes_over_for_the_last_of_a_role, "I8"),
        (a_turn_is_not_delivered, "I8"),
        (a_turn_gets_lost_in_the_engine, "I8"),
        (one_too_many_is_started, "I8"),
        (there_is_no_window, "I9"),
        (a_running_session_is_demoted, "I10"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_planted_bug_is_caught(plant, name, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(ViolationError, match=rf"^({name}): "):
        play_all(range(CASES))


def test_a_turn_that_gets_lost_on_the_way_is_caught(monkeypatch):
    a_turn_that_comes_while_its_episode_moves_is_lost(monkeypatch)
    with pytest.raises(ViolationError, match=r"^I8: "):
        [play(moving(seed)) for seed in range(40)]


def test_batches_that_depend_on_the_trainer_are_caught(monkeypatch):
    places_are_given_when_the_trainer_is_free(monkeypatch)
    pipelined_steps_take_longer(monkeypatch)
    with pytest.raises(ViolationError, match=r"^I6: "):
        [check_that_batches_do_not_depend_on_the_pipelining(seed) for seed in range(8)]


def test_tokens_that_depend_on_evictions_are_caught(monkeypatch):
    a_turn_without_kv_says_more(monkeypatch)
    with pytest.raises(ViolationError, match=r"^(I4|I10): "):
        [check_that_tokens_do_not_depend_on_the_way(seed) for seed in range(6)]
