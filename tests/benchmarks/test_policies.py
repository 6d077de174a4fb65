"""The benchmark of the policies: what it measures, how it tunes, and that it can be done in pieces."""

import argparse
import json
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

import policies
from policies_support import bounds, elasticity, retention, tail, worth
from policies_support.ablations import SUBSETS, priorities, shares
from policies_support.baselines import BASELINES, SWEEP
from policies_support.bench import Bench, Tuning, interval
from policies_support.demand import demand, divided, paced, subscribed, varied
from policies_support.plan import PLAN, POLICIES, PRIORITIES
from policies_support.splits import Known, Planned
from springtide.scheduling.elasticity import Demand, Rates
from springtide.scheduling.readiness import Readiness
from springtide.simulation.bound import limits
from springtide.simulation.cluster import cluster
from springtide.simulation.distribution import mean
from springtide.simulation.simulate import simulate
from springtide.simulation.strategy import Strategy
from springtide.simulation.workload import preset

HARDWARE = cluster("h100-14b")
WORK = preset("tau", 8)


class Hill:
    """A bench whose goodput is known: highest at 64 episodes and 5 ranks."""

    def __init__(self):
        self.asked = 0

    def goodputs(self, work, hardware, strategies):
        self.asked += len(strategies)
        return [
            100 - abs(SWEEP.index(one.concurrency_per_rank) - 3) - 2 * abs(one.rollout_ranks - 5) for one in strategies
        ]


@pytest.mark.parametrize("sweep", [True, False])
def test_tuning_finds_the_top_and_asks_for_nothing_twice(sweep):
    bench = Hill()
    axes = {"concurrency_per_rank": SWEEP, "rollout_ranks": range(1, 8)}
    tuning = Tuning(bench, WORK, HARDWARE, axes, sweep=sweep)
    best = tuning.best(Strategy(concurrency_per_rank=8, rollout_ranks=2))
    assert (best.concurrency_per_rank, best.rollout_ranks) == (64, 5)
    assert len(tuning.tried) == bench.asked
    assert tuning.goodput(best) == max(tuning.tried.values()) == 100


def test_every_baseline_of_the_plan_is_there_and_starts_within_its_settings():
    assert {line["name"]: line["compared_as"] for line in PLAN["baseline"]} == {
        line.name: line.group for line in BASELINES
    }
    for line in BASELINES:
        start = line.start(split=1, staleness=1)
        for name, values in line.axes(HARDWARE.ranks).items():
            assert getattr(start, name) in values, (line.name, name)
    surplus = next(line for line in BASELINES if line.surplus)
    planned = next(line for line in PLAN["baseline"] if line["name"] == surplus.name)
    assert list(surplus.surplus) == planned["sweep"]["surplus"]


def test_where_ranks_are_divided_versions_in_order_are_no_faster_and_turns_lose_nothing_to_rounding():
    found = {
        entry["workload"]: bounds.bounds(entry) for entry in PLAN["preset"] if entry["workload"] in ("shop", "swe")
    }
    for one in found.values():
        assert one["turns"] > one["fluid"]
        assert one["in_order"] < 1.05 * one["staleness"]
    half = {"swe": {"bound_fraction": {"median": 0.5}}}
    share = bounds.in_order_fractions(found, half)["swe"]
    assert share == pytest.approx(0.5 * found["swe"]["staleness"] / found["swe"]["in_order"])


def test_a_schedule_at_the_bound_has_as_much_more_over_a_baseline_as_ours_is_below_it():
    presets = {"swe": {"vs_async": {"median": 1.2}, "vs_reconstruction": {"median": 1.05}}}
    assert bounds.most({"swe": 0.8}, presets) == {"swe": pytest.approx({"vs_async": 1.5, "vs_reconstruction": 1.3125})}


def test_retention_has_the_rules_and_settings_of_the_plan():
    assert set(retention.RULES) == {*PLAN["retention"]["names"], "ours"}
    assert [one["retention"] for one in retention.RULES["ttl"]] == ["ttl-1", "ttl-4", "ttl-16", "ttl-64"]
    for rule in retention.RULES.values():
        for setting in rule:
            Strategy(**setting)


def test_the_map_has_every_point_of_the_plan_once():
    points = worth.points()
    assert len(points) == len(set(points)) == 20 + 3 + 3
    for name, values in PLAN["map"].items():
        assert {getattr(point, name) for point in points} - {None} == set(values)
    for limit in PLAN["map"]["staleness"]:
        names = {line.name for line in worth.lines(limit)}
        assert ("one step off" in names) == (limit == 1)
        assert {line.group for line in worth.lines(limit)} == set(worth.GROUPS)


def test_workloads_and_hardware_are_what_the_map_says():
    hardware, work = divided(HARDWARE, preset("tau", 64), 2)
    assert (hardware.ranks, work.groups_per_step) == (4, 32)
    asked = demand(work, hardware)
    assert subscribed(work, hardware, 2.0).kv_tokens == pytest.approx(asked.tokens / 2, abs=1)
    assert subscribed(work, hardware, 1000.0).kv_tokens > work.context
    for ratio in (0.3, 10.0):
        slow = paced(work, hardware, ratio)
        assert limits(slow, hardware, reference=True).environment_ratio == pytest.approx(ratio)
    wide = varied(work, 3.0)
    assert mean(wide.latency, points=200_000) == pytest.approx(mean(work.latency), rel=0.02)
    draws = [wide.latency.quantile((number + 0.5) / 200_000) for number in range(200_000)]
    middle = sum(draws) / len(draws)
    deviation = (sum((draw - middle) ** 2 for draw in draws) / len(draws)) ** 0.5
    assert deviation / middle == pytest.approx(3.0, rel=0.15)


def test_waits_are_of_the_steps_asked_for_and_of_both_sides():
    starved = simulate(WORK, HARDWARE, Strategy(kv="keep", rollout_ranks=1), seed=0, steps=4)
    ranks = HARDWARE.ranks
    whole = elasticity.waited(starved, ranks, 0)
    assert whole * sum(starved.trained_tokens) == pytest.approx(
        7 * starved.ledger["trainer"]["rollout"]
        + sum(starved.ledger["engine"].get(name, 0.0) for name in ("training", "admission")),
        rel=0.02,
    )
    parts = [elasticity.waited(starved, ranks, step, step + 1) * starved.trained_tokens[step] for step in range(4)]
    assert sum(parts) == pytest.approx(whole * sum(starved.trained_tokens))
    balanced = simulate(WORK, HARDWARE, Strategy(kv="keep", rollout_ranks=4), seed=0, steps=4)
    assert elasticity.waited(balanced, ranks, 0) < whole
    assert elasticity.goodput(starved, 0) == pytest.approx(starved.goodput)


@pytest.mark.parametrize(
    ("splits", "steps"),
    [
        ([4] * 10, 0),
        ([4] * 7 + [5] * 3, 1),
        ([4] * 3 + [5] * 7, 0),
        ([3, 4] * 5, 4),
        ([2] * 10, 4),
        ([2] * 8 + [3] * 2, 2),
    ],
)
def test_a_split_has_settled_when_it_stays_and_is_near_the_best(splits, steps):
    done = SimpleNamespace(splits=tuple(splits))
    assert elasticity.settled(done, 6, best=4) == steps


def test_a_change_is_played_on_every_split_and_by_every_policy_that_moves_ranks():
    bench = Bench(map, seeds=[0], steps=6, warm=2)
    found = elasticity.shock(bench, PLAN["preset"][-1], elasticity.changes()["output"], groups=2)
    assert list(found["static_waits"]) == list(range(1, 8))
    assert {"ours", "oracle split per step"} < set(found["moving"])
    told = found["moving"]["oracle split per step"]["splits"][0]
    assert (told[0], told[-1]) == (found["best_static_before"], found["best_static_after"])
    assert found["waiting_reduction"] == found["moving"]["ours"]["waiting_reduction"]
    assert len(list(elasticity.rows({"output": found}))) == len(found["moving"])


SEEN = Readiness(
    environment=1.0,
    context=6000.0,
    output=150.0,
    appended=400.0,
    turns=20.0,
    trained=9000.0,
    longest=None,
    interval=1.0,
    backlog=0,
    oldest=0.0,
    open=100,
    ended=1000,
)


def test_the_planner_moves_for_a_gain_that_is_worth_its_cost_and_rests():
    rates = Rates(costs=lambda: HARDWARE.costs, kv_tokens=HARDWARE.kv_tokens, max_batch=HARDWARE.max_batch)
    asked = Demand(ranks=8, batch=512, live=1024, reference=True)
    best = max(range(1, 8), key=lambda split: rates.throughput(SEEN, split, asked))
    planner = Planned(gain=0.05, every=2, cost=5.0)(rates)
    assert planner.split(SEEN, 1, asked) == 1, "it plans at every second version"
    assert planner.split(SEEN, 1, asked) == best
    assert [planner.split(SEEN, 1, asked) for _ in range(4)] == [1, 1, 1, best], "one plan of rest"
    assert planner.split(SEEN, best, asked) == best
    dear = Planned(gain=0.05, every=1, cost=1e9)(rates)
    assert dear.split(SEEN, 1, asked) == 1


def test_what_is_known_is_done_version_by_version():
    told = Known((4, 4, 6))(None)
    new = replace(SEEN, ended=0)
    assert [told.split(seen, 4, None) for seen in (new, new, SEEN, SEEN, SEEN)] == [4, 4, 4, 6, 6]
    done = simulate(WORK, HARDWARE, Strategy(rollout_ranks=3), seed=0, steps=4, splitter=Known((3, 5)))
    assert done.splits[0] == 3
    assert set(done.splits[1:]) == {5}


def test_shares_of_policies_multiply_to_the_whole_gain_and_equals_share_equally():
    goodput = {(): 1.0, ("ctb",): 2.0, ("ra2p",): 2.0, ("ers",): 1.0}
    goodput |= {("ctb", "ra2p"): 8.0, ("ctb", "ers"): 2.0, ("ra2p", "ers"): 2.0, ("ctb", "ra2p", "ers"): 8.0}
    found = shares(goodput, ("ctb", "ra2p", "ers"))
    assert found["ctb"] == pytest.approx(found["ra2p"]) == pytest.approx(8**0.5)
    assert found["ers"] == pytest.approx(1.0)


def test_every_rule_of_priority_is_a_fourth_policy_of_the_ablations():
    goodput = dict.fromkeys(SUBSETS, 1.0) | {names: 2.0 for names in SUBSETS if names[-1:] == ("longest",)}
    for rule in PRIORITIES:
        found = shares(goodput, (*POLICIES, rule))
        assert found[rule] == pytest.approx(2.0 if rule == "longest" else 1.0)
        assert found["ctb"] == pytest.approx(1.0)


def test_rules_of_priority_are_compared_with_the_oldest_first_and_see_every_step_through():
    bench = Bench(map, seeds=[0], steps=2, warm=1)
    found = priorities(bench, PLAN["preset"][-1], "sync", groups=4)
    assert set(found) == set(PRIORITIES)
    assert all(0.8 < one["median"] < 1.25 for one in found.values())


def test_the_last_episodes_are_brought_together_and_ranks_are_freed_for_it():
    job = tail.Job("tau", "h100-14b", "sync", 4, False, 0, 4)
    goodput, freed = tail.play(job)
    before, nothing = tail.play(job._replace(least=0))
    assert freed > nothing == 0.0
    assert goodput < 1.01 * before


def test_an_interval_holds_its_median():
    found = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found["low"] <= found["median"] == 3.0 <= found["high"]
    assert interval([2.0]) == {"median": 2.0, "low": 2.0, "high": 2.0}


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(policies, "RESULTS", tmp_path)
    monkeypatch.setattr("common.report.RESULTS", tmp_path)
    return tmp_path / "policies.json"


def test_parts_are_merged_and_the_last_line_has_what_there_is(results, capsys):
    options = argparse.Namespace(seed=0, quick=False, json=True)
    policies.Record(options).keep("pipelining", {"seed": 0}, {"oracle_regret": 0.01})
    assert capsys.readouterr().out == "", "an hour's run prints its figures once"
    shock = {"waiting_reduction": {"median": 0.5}, "settle_steps": 2.0}
    other = {"waiting_reduction": {"median": 0.7}, "settle_steps": 1.0}
    record = policies.Record(options)
    record.keep("shock", {"seed": 0}, {"latency": shock, "output": other})
    record.keep("", {}, None, show=True)
    expected = {**shock, "longer_outputs": other, "oracle_regret": 0.01}
    assert json.loads(capsys.readouterr().out) == expected
    written = json.loads(results.read_text())
    assert set(written["parts"]) == {"pipelining", "shock"}
    assert written["label"] == "L2"
    assert written["figures"] == expected


def test_hits_are_ours_at_twice_the_capacity():
    def point(times, host, ours):
        rules = {"ours": {"hit_rate": {"median": ours}}, "lru": {"hit_rate": {"median": 0.1}}}
        return {"oversubscription": times, "host_memory": host, "rules": rules}

    points = [point(1.0, True, 0.5), point(2.0, True, 0.99), point(2.0, True, 0.97), point(2.0, False, 0.3)]
    assert policies.figures({"retention": {"found": points}}) == {"hit_rate": 0.97}


@pytest.mark.parametrize(
    ("text", "quick", "expected"),
    [(None, False, tuple(policies.PARTS)), ("map,shock", False, ["map", "shock"]), (None, True, policies.QUICK)],
)
def test_parts_are_chosen(text, quick, expected):
    assert policies.chosen(text, quick=quick) == expected


def test_a_part_that_is_not_there_is_named():
    with pytest.raises(SystemExit, match="no part 'maps'; there are: bounds, presets"):
        policies.chosen("maps", quick=False)


def test_the_picture_is_drawn_from_what_the_map_found(tmp_path):
    pytest.importorskip("matplotlib")
    found = [
        point._asdict() | {group: {"median": 1.0 + 0.1 * number} for group in worth.GROUPS}
        for number, point in enumerate(worth.points())
    ]
    worth.draw(found, tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 1000
