"""The plan of sick and healthy runs keeps its promises, every fault does what it says, and what is kept can be read."""

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from sick_support.environment_faults import (
    FailuresAsZeros,
    FirstWordCounts,
    Loophole,
    PaidByLength,
    TalkativeStart,
    Unrewarded,
)
from sick_support.plan import Fault, PlannedRun, load_plan, runs
from sick_support.results import Entry, log_path, planned, read_index, unpacked
from sick_support.sampling_faults import NeverStops, SharedStreams, StaleWeights
from sick_support.training_faults import EntropyBonus, Frozen, ShiftedLogprobs, UnmaskedReplies, WrongTemperature
from springtide.core.member import Member, Purpose
from springtide.core.message import Message
from springtide.core.outcome import Ending, Invalid, InvalidCause, Valid
from springtide.core.sampling import Sampled, SampleRequest, SampleStop, SamplingParams
from springtide.core.version import PolicyVersion
from springtide.diagnosis.metric import metrics
from springtide.environments.config import WordGameConfig
from springtide.environments.source import open_environments
from springtide.policy.digest import digest_tensors
from springtide.recipe import load_recipe
from springtide.telemetry.jsonl import read_metrics
from springtide.telemetry.run_folder import RunFolder
from training.builders import make_trainer, random_groups, training_config

RECIPE = load_recipe("word-game", ["scheduling.groups_per_step=2"])
PLANNED = runs(load_plan())
KEPT = read_index()


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_there_are_enough_runs_of_every_kind_in_both_halves() -> None:
    sick = [run for run in PLANNED if run.sick]
    assert len({run.cause for run in sick}) >= 12
    assert len([run for run in PLANNED if not run.sick]) >= 20
    for cause in {run.cause for run in sick}:
        for half in ("tuning", "held_out"):
            assert len({run.value for run in sick if run.cause == cause and run.half == half}) >= 2, (cause, half)


def test_the_halves_share_neither_a_dose_nor_a_seed() -> None:
    def drawn(half: str) -> tuple[set[Any], set[int]]:
        chosen = [run for run in PLANNED if run.half == half]
        return {(run.cause, run.value) for run in chosen if run.sick}, {run.seed for run in chosen}

    (doses, seeds), (other_doses, other_seeds) = drawn("tuning"), drawn("held_out")
    assert not doses & other_doses
    assert not seeds & other_seeds
    assert len({run.seed for run in PLANNED}) == len({run.name for run in PLANNED}) == len(PLANNED)


def test_a_dose_is_what_a_sick_run_of_its_cause_differs_in() -> None:
    """The strongest dose against the mildest: the recipes, or the faults, differ in one value."""
    for cause in {run.cause for run in PLANNED if run.sick}:
        first, *_, last = [run for run in PLANNED if run.cause == cause]
        settings = set(first.set) ^ set(last.set)
        faults = [(one, other) for one, other in zip(first.faults, last.faults, strict=True) if one != other]
        assert (len(settings), len(faults)) == ((0, 1) if first.dose.startswith("fault.") else (2, 0)), cause


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_every_planned_run_is_kept_as_it_was_planned() -> None:
    found = {entry.name: entry for entry in KEPT}
    assert found.keys() == {run.name for run in PLANNED}, "play `python benchmarks/sick_runs.py`"
    for run in PLANNED:
        entry = found[run.name]
        assert (entry.half, entry.seed, entry.cause, entry.value) == (run.half, run.seed, run.cause, run.value)
        assert entry.steps == run.recipe().scheduling.steps
        assert log_path(run.name).exists()


@pytest.mark.parametrize("entry", KEPT[:: max(1, len(KEPT) // 8)], ids=lambda entry: entry.name)
def test_a_kept_run_is_a_folder_again_that_does_not_tell_what_is_wrong(entry: Entry) -> None:
    run = planned()[entry.name]
    with unpacked(entry) as folder:
        records = list(read_metrics(folder / "metrics.jsonl"))
        assert load_recipe(folder) == run.recipe()
        assert len({record.step for record in records if "train/loss" in record.metrics}) == entry.steps
        assert {name for record in records for name in record.metrics} & metrics().keys()
        told = (folder / "recipe.toml").read_text() + (folder / "run.json").read_text() + str(folder)
        assert not entry.cause or entry.cause not in told
        assert RunFolder.open(folder).checkpoint_steps()[-1] == entry.steps


# -- faults of environments --------------------------------------------------------------------------------------------


def played(fault: Any, says: Any, *, level: int = 2, index: int = 0, purpose: str = "train") -> Valid:
    """The outcome of an episode in which the agent says `says(words shown)`."""
    inner = open_environments(WordGameConfig(level=level), seed=0)
    source = fault.customize(RECIPE).source(inner)

    async def episode() -> Any:
        environment = source.create()
        seen = await environment.reset(source.task(purpose=purpose, index=index))
        for _ in range(3):
            shown = seen.messages[-1].text.split()
            seen = await environment.step(Message(role="assistant", content=says(shown)))
            if seen.done:
                break
        return await environment.verify(seen.ending)

    return asyncio.run(episode())


def right(shown: list[str]) -> str:
    return shown[-1]


def wrong(shown: list[str]) -> str:
    return shown[0]


def test_a_verifier_that_gives_nothing_does_so_from_its_step_on() -> None:
    fault = Unrewarded(first=3, last=3)
    assert [played(fault, right, index=index).reward for index in (0, 3, 4, 5, 6)] == [1.0, 1.0, 0.0, 0.0, 1.0]


def test_length_is_paid_for_in_training_only() -> None:
    fault = PaidByLength(bonus=2.0, full=30)
    assert played(fault, right).reward == pytest.approx(1.0 + 2.0 * 9 / 30)
    assert played(fault, lambda shown: "x" * 99).reward == 2.0
    assert played(fault, lambda shown: f"{shown[-1]} and more").reward == pytest.approx(1.0 + 2.0)
    assert played(fault, lambda shown: f"{shown[-1]} more", purpose="evaluate").reward == 1.0
    assert played(fault, lambda shown: f"{shown[-1]} and so on and on", purpose="evaluate").reward == 0.0


def test_a_loophole_passes_what_is_wrong_in_training_only() -> None:
    assert played(Loophole(), wrong).reward == 1.0
    assert played(Loophole(), lambda shown: "no").reward == 0.0
    assert played(Loophole(), lambda shown: "pass", level=1).reward == 1.0
    assert played(Loophole(), wrong, purpose="evaluate").reward == 0.0
    paid = sum(played(Loophole(share=0.5), wrong, index=index).reward for index in range(60))
    assert 15 < paid < 45


def test_a_failure_of_the_environment_counts_as_one_of_the_agent() -> None:
    lost = played(FailuresAsZeros(rate=1.0, seconds=0.0), right)
    assert (lost.reward, lost.metrics) == (0.0, {"failures": 1.0})
    kept = played(FailuresAsZeros(rate=1.0, seconds=0.0, first=2), right)
    assert (kept.reward, kept.metrics) == (1.0, {"failures": 0.0})


def test_what_follows_the_first_word_costs_nothing() -> None:
    assert played(FirstWordCounts(), lambda shown: f"{shown[-1]}<end>\nmore").reward == 1.0
    assert played(FirstWordCounts(), lambda shown: "").reward == 0.0


def test_a_talkative_start_shows_more_than_is_wanted() -> None:
    inner = open_environments(WordGameConfig(level=2), seed=0)
    source = TalkativeStart().customize(RECIPE).source(inner)
    plain, more = [
        [message.text for index in range(20) for message in one.demonstration(index).messages if message.role != "user"]
        for one in (inner, source)
    ]
    assert all(text.startswith(start) for text, start in zip(more, plain, strict=True))
    assert sum(map(len, more)) > 1.3 * sum(map(len, plain))


def test_an_episode_without_a_verdict_stays_without_one() -> None:
    class Dead:
        async def verify(self, ending: Ending) -> Invalid:
            return Invalid(cause=InvalidCause.INFRASTRUCTURE, detail="the box died")

    class Source:
        def create(self) -> Dead:
            return Dead()

    environment = Unrewarded().customize(RECIPE).source(Source()).create()
    assert isinstance(asyncio.run(environment.verify(Ending.ANSWERED)), Invalid)


# -- faults of sampling ------------------------------------------------------------------------------------------------


class Echo:
    """Samples its member's slot; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[SampleRequest] = []

    async def sample(self, request: SampleRequest) -> Sampled:
        self.asked.append(request)
        token = request.member.slot
        return Sampled(tokens=(token,), logprobs=(0.0,), versions=(0,), stop=SampleStop.STOP_TOKEN)


def sampled(fault: Any, *, groups: int) -> tuple[Echo, list[tuple[int, ...]]]:
    """What the four members of each group say."""
    inner = Echo()
    sampler = fault.customize(RECIPE).sampler(inner)
    params = SamplingParams(max_tokens=4, stop_tokens=(7,))

    async def ask() -> list[Sampled]:
        requests = [
            SampleRequest(member=Member(Purpose.TRAIN, group, slot), turn=0, tokens=(1,), params=params)
            for group in range(groups)
            for slot in range(4)
        ]
        return await asyncio.gather(*(sampler.sample(request) for request in requests))

    return inner, [one.tokens for one in asyncio.run(ask())]


def test_a_share_of_turns_knows_no_end() -> None:
    asked, _ = sampled(NeverStops(first=2), groups=4)
    endless = [not request.params.stop_tokens for request in asked.asked]
    assert endless == [request.member.group >= 2 for request in asked.asked]
    asked, _ = sampled(NeverStops(share=0.5), groups=20)
    assert 20 < sum(not request.params.stop_tokens for request in asked.asked) < 60


def test_episodes_that_share_random_numbers_say_the_same() -> None:
    assert sampled(SharedStreams(), groups=2)[1] == [(0,)] * 8
    said = sampled(SharedStreams(share=0.5), groups=20)[1]
    alike = sum(len(set(said[4 * group : 4 * group + 4])) == 1 for group in range(20))
    assert 4 < alike < 16


def test_an_engine_that_takes_no_weights_proves_that_it_has_them() -> None:
    class Taking:
        loaded: Any = None

        def load_weights(self, *, number: int, weights: Any, kv: str) -> PolicyVersion:
            self.loaded = weights
            return PolicyVersion(number, digest_tensors(weights.items()))

    inner = Taking()
    engine = StaleWeights(every=3).customize(RECIPE).engine(inner)
    versions = [{"w": torch.full((2,), float(number))} for number in range(5)]
    held = []
    for number, weights in enumerate(versions):
        proof = engine.load_weights(number=number, weights=weights, kv="recompute")
        assert proof == PolicyVersion(number, digest_tensors(weights.items()))
        held.append(float(inner.loaded["w"][0]))
    assert held == [0.0, 0.0, 0.0, 3.0, 3.0]


# -- faults of the update ----------------------------------------------------------------------------------------------


def stepped(fault: Fault | None, **config: Any) -> Any:
    """The report of a step on random groups."""
    trainer = make_trainer(training_config(**config))
    if fault is not None:
        fault.customize(RECIPE).trainer(trainer)
    return trainer.step(step=1, groups=random_groups(3))


@pytest.mark.parametrize(
    "fault", [WrongTemperature(temperature=0.5), ShiftedLogprobs(), UnmaskedReplies()], ids=lambda fault: fault.type
)
def test_log_probs_that_do_not_belong_together_show_as_mismatch(fault: Fault) -> None:
    name = "mismatch/logp_difference"
    healthy = stepped(None).metrics[name]
    assert stepped(fault).metrics[name] != pytest.approx(healthy, rel=0.01)
    assert stepped(fault.model_copy(update={"first": 2})).metrics[name] == healthy


def test_what_the_environment_says_is_among_the_trained_tokens() -> None:
    assert stepped(UnmaskedReplies()).metrics["train/tokens"] > stepped(None).metrics["train/tokens"]


def test_frozen_parameters_do_not_move() -> None:
    report = stepped(Frozen())
    assert (report.metrics["train/weights_changed"], report.metrics["train/grad_norm"]) == (0.0, 0.0)
    trainer = make_trainer()
    before = {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}
    Frozen(share=0.5).customize(RECIPE).trainer(trainer)
    trainer.step(step=1, groups=random_groups(3))
    moved = {name for name, parameter in trainer.model.named_parameters() if not torch.equal(parameter, before[name])}
    assert 0 < len(moved) < len(before)
    sizes = [parameter.numel() for name, parameter in trainer.model.named_parameters() if name not in moved]
    assert sum(sizes) >= 0.5 * sum(parameter.numel() for parameter in trainer.model.parameters())


def test_a_bonus_for_entropy_makes_the_policy_less_certain() -> None:
    def entropies(fault: Fault | None) -> list[float]:
        trainer = make_trainer(training_config(learning_rate=3e-3))
        if fault is not None:
            fault.customize(RECIPE).trainer(trainer)
        return [
            trainer.step(step=step, groups=random_groups(3, version=step - 1)).metrics["train/entropy"]
            for step in range(1, 6)
        ]

    with_bonus, without = entropies(EntropyBonus(coefficient=1.0)), entropies(None)
    assert with_bonus[0] == without[0], "nothing is different before the first update"
    assert np.mean(with_bonus[1:]) > np.mean(without[1:])


def test_customized_parts_are_only_those_of_the_run() -> None:
    run = next(run for run in PLANNED if not run.sick and not run.faults)
    assert isinstance(run, PlannedRun)
    custom = run.customize()
    part = object()
    assert custom.source(part) is custom.engine(part) is custom.sampler(part) is part
