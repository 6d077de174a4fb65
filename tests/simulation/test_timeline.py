import pytest

from springtide.simulation.timeline import Span, Timeline, draw


def timeline(*told):
    made, now = Timeline(), [0.0]
    watch = made.watch(lambda: now[0])
    for start, lane, name, cost in told:
        now[0] = start
        watch.begun(lane, name, cost)
    return made


def test_work_becomes_spans_and_neighbours_of_a_kind_one():
    made = timeline(
        (0.0, "engine-0", "generate", {"prefill": 1.0, "decode": 2.0}),
        (3.0, "engine-0", "generate", {"decode": 4.0, "reload": 0.0}),
        (3.0, "trainer", "train", {"actor": 5.0}),
        (9.0, "engine-0", "load_weights", 1.5),
    )
    assert made.spans == [
        Span("engine-0", "prefill", 0.0, 1.0),
        Span("engine-0", "decode", 1.0, 6.0),
        Span("trainer", "actor", 3.0, 5.0),
        Span("engine-0", "load_weights", 9.0, 1.5),
    ]


def test_work_that_began_before_it_was_asked_for_is_drawn_from_then():
    made = timeline((9.0, "trainer", "train", {"actor": 6.0, "optimizer": 2.0, "rollout": -4.0}))
    assert made.spans == [Span("trainer", "actor", 5.0, 6.0), Span("trainer", "optimizer", 11.0, 2.0)]


def test_it_can_be_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    made = timeline((0.0, "engine-10", "generate", {"decode": 2.0}), (0.0, "trainer", "train", {"actor": 5.0}))
    draw(made, tmp_path / "timeline.png", title="a run", steps=(5.0,))
    assert (tmp_path / "timeline.png").stat().st_size > 1000
