from statistics import correlation, fmean

import pytest

from springtide.core.errors import UsageError
from springtide.simulation.script import Scripts
from springtide.simulation.workload import names, preset


@pytest.mark.parametrize("name", names())
def test_every_preset_is_played_by_the_rules_of_its_context(name):
    workload = preset(name)
    scripts = Scripts(workload, 0)
    for task in range(20):
        script = scripts.script(task=task, slot=0)
        assert script.turns[0].reusable == 0
        assert script.turns[0].context >= script.prefix >= script.shared
        for before, turn in zip(script.turns, script.turns[1:], strict=False):
            if workload.window is None:
                assert turn.reusable == before.context + before.output
            assert turn.reusable <= before.context + before.output
            assert turn.reusable < turn.context
        assert all(turn.context + turn.output <= workload.context for turn in script.turns)
        assert all(turn.output >= 1 and turn.latency >= 0 for turn in script.turns)


def test_scripts_follow_from_their_names_alone():
    one, other = Scripts(preset("swe"), 3), Scripts(preset("swe"), 3)
    other.script(task=9, slot=9)
    assert one.script(task=1, slot=2) == other.script(task=1, slot=2)
    assert one.script(task=1, slot=2) != one.script(task=1, slot=3)
    assert one.script(task=1, slot=2, attempt=2) != one.script(task=1, slot=2)
    assert one.script(task=1, slot=2) != Scripts(preset("swe"), 4).script(task=1, slot=2)


def test_members_of_a_group_are_of_similar_length_and_others_are_not():
    scripts = Scripts(preset("tau"), 0)
    pairs = [[len(scripts.script(task=task, slot=slot).turns) for slot in (0, 1)] for task in range(400)]
    siblings = correlation(*zip(*pairs, strict=True))
    strangers = correlation([one for one, _ in pairs[1:]], [two for _, two in pairs[:-1]])
    assert siblings == pytest.approx(0.6, abs=0.1)
    assert abs(strangers) < 0.15


def test_a_window_keeps_five_images_and_moves_everything_behind_the_oldest():
    workload = preset("gui")
    script = next(
        found for task in range(50) if len((found := Scripts(workload, 0).script(task=task, slot=0)).turns) > 8
    )
    early, late = script.turns[4], script.turns[7]
    assert early.reusable == script.turns[3].context + script.turns[3].output
    texts = sum(turn.output for turn in script.turns[:7])
    assert 5 * 700 <= late.context - script.prefix - texts <= 5 * 1500
    # The oldest image stood behind the first two outputs.
    assert late.reusable == script.prefix + sum(turn.output for turn in script.turns[:2])
    assert script.trained == tuple(turn.context + turn.output for turn in script.turns)


def test_failures_come_as_often_as_the_preset_says_and_hang_as_long():
    workload = preset("swe")
    scripts = Scripts(workload, 0)
    episodes = [scripts.script(task=task, slot=slot) for task in range(300) for slot in range(4)]
    failed = [script for script in episodes if script.failed]
    assert fmean(script.failed for script in episodes) == pytest.approx(workload.failure, abs=0.02)
    assert all(script.turns[-1].latency == 600 for script in failed)


def test_from_some_task_on_outputs_are_longer_and_nothing_else_is_drawn_anew():
    work = preset("tau").model_copy(update={"failure": 0.0})
    plain, longer = Scripts(work, 0), Scripts(work.model_copy(update={"change_at": 5, "change_output": 3.0}), 0)
    assert longer.script(task=4, slot=0) == plain.script(task=4, slot=0)
    one, other = plain.script(task=5, slot=0), longer.script(task=5, slot=0)
    assert [turn.output for turn in other.turns] == [3 * turn.output for turn in one.turns]
    assert [turn.latency for turn in other.turns] == [turn.latency for turn in one.turns]
    added = [turn.context - turn.reusable for turn in one.turns]
    assert [turn.context - turn.reusable for turn in other.turns] == added


def test_an_unknown_preset_is_one_sentence_with_all_that_there_are():
    with pytest.raises(UsageError, match="no workload 'shopp'; there are: gui, house"):
        preset("shopp")
