"""Bands move as the thing that is varied says, and not at all where the run never meets it."""

import pytest

from springtide.scheduling.costs import ServiceCosts
from springtide.simulation.bands import GROUPS, LATENCY, Band, bands, scaled
from springtide.simulation.cluster import cluster
from springtide.simulation.script import Scripts
from springtide.simulation.strategy import Strategy
from springtide.simulation.summary import summarise
from springtide.simulation.workload import preset

SHOP = preset("shop").model_copy(update={"groups_per_step": 8})
H100 = cluster("h100-7b").model_copy(update={"ranks": 4})
NOTHING = {"type": "constant", "value": 0.0}


def found(workload, hardware, strategy):
    length = {"steps": 2, "warm_steps": 0}
    summary, _ = summarise(workload, hardware, strategy, seeds=[0], **length)
    return summary, bands(summary, workload, hardware, **length)


def test_every_cost_is_in_one_group():
    names = [name for group in GROUPS.values() for name in group]
    assert sorted(names) == sorted(ServiceCosts.model_fields)


def test_each_moves_the_right_way_and_the_largest_effect_comes_first():
    # In turns, every run trains the same groups; otherwise other groups can come first, which is worth several percent.
    summary, told = found(SHOP, H100, Strategy(mode="sync"))
    given = summary.goodput_tokens_per_s
    by_name = {band.what: band for band in told}
    assert set(by_name) == {*GROUPS, LATENCY}
    for what in ("prefill", "decode", "training", "publish", "swap", LATENCY):
        assert by_name[what].lower > given > by_name[what].higher, what
    assert by_name["role_switch"].effect == 0, "no rank changes its role"
    effects = [band.effect for band in told]
    assert effects == sorted(effects, reverse=True)
    assert told[0].change_lower == pytest.approx(told[0].lower / given - 1)


def test_a_run_that_only_decodes_is_faster_by_what_decoding_is():
    zero = dict.fromkeys(ServiceCosts.model_fields, 0.0)
    hardware = H100.model_copy(
        update={"costs": ServiceCosts.model_validate(zero | {"decode_base": 0.01, "forward_token": 1e-12})}
    )
    fields = SHOP.model_dump() | {"latency": NOTHING, "reset": NOTHING, "grade": NOTHING, "failure": 0.0}
    _, told = found(type(SHOP).model_validate(fields), hardware, Strategy(mode="sync"))
    assert told[0].what == "decode"
    assert told[0].change_lower == pytest.approx(1 / 0.7 - 1)
    assert told[0].change_higher == pytest.approx(1 / 1.3 - 1)
    assert all(band.effect < 1e-6 for band in told[1:])


def test_latency_has_no_effect_where_the_environment_takes_no_time():
    fields = SHOP.model_dump() | {"latency": NOTHING}
    _, told = found(type(SHOP).model_validate(fields), H100, Strategy(rollout_ranks=2))
    assert next(band for band in told if band.what == LATENCY).effect == 0


def test_latencies_are_longer_by_the_factor_before_and_after_a_change_of_the_workload_itself():
    changing = SHOP.model_copy(update={"change_at": 1, "change_latency": 2.0})
    longer, hardware = scaled(changing, H100, LATENCY, 1.3)
    assert hardware == H100
    for task, factor in ((0, 1.3), (1, 2.6)):
        plain, scripted = (Scripts(work, 0).script(task=task, slot=0).turns for work in (SHOP, longer))
        assert [turn.latency for turn in scripted] == pytest.approx([factor * turn.latency for turn in plain])


@pytest.mark.parametrize(
    ("lower", "higher", "chance"), [(0.24, 0.07, True), (-0.03, -0.02, True), (0.2, -0.1, False), (0.001, 0.002, False)]
)
def test_what_is_better_both_ways_is_chance(lower, higher, chance):
    band = Band(what="decode", lower=1.0, higher=1.0, change_lower=lower, change_higher=higher)
    assert band.by_chance == chance
