import json

import pytest

QUICK = ("--steps", "1", "--warm-steps", "0")


def test_a_workload_is_played_and_told_beside_its_bound(springtide):
    result = springtide("simulate", "shop", *QUICK, "--seeds", "2", "--json")
    assert result.exit_code == 0
    assert "shop on h100-7b, async (L2, 2 seeds)" in result.stdout
    assert "where the time went" in result.stdout
    told = json.loads(result.stdout.splitlines()[-1])
    assert told["lowest"] <= told["goodput_tokens_per_s"] <= told["highest"]
    assert told["bound_fraction"] == pytest.approx(told["goodput_tokens_per_s"] / told["bound_tokens_per_s"])
    assert told["staleness_max"] <= 1
    assert sum(told["ledger"]["trainer"].values()) == pytest.approx(1, abs=0.01)


def test_the_same_command_tells_the_same(springtide):
    one, two = (springtide("simulate", "shop", *QUICK, "--set", "mode=sync", "--json").stdout for _ in range(2))
    assert one == two


def test_everything_there_is_can_be_listed(springtide):
    listed = springtide("simulate", "--list").stdout
    assert all(word in listed for word in ("roll10", "h100-4b-vl", "rollout_ranks"))


def test_ranks_that_fail_show_in_the_ledger(springtide):
    plain, failing = (
        json.loads(springtide("simulate", "shop", *QUICK, *fail, "--json").stdout.splitlines()[-1])
        for fail in ((), ("--fail", "0@10", "--fail", "1@10-20"))
    )
    assert "dead" not in plain["ledger"]["rollout"]
    assert failing["ledger"]["rollout"]["dead"] > 0.1
    assert failing["goodput_tokens_per_s"] < plain["goodput_tokens_per_s"]


def test_a_run_that_loses_all_ranks_of_a_role_stops_with_one_sentence(springtide):
    fails = [text for rank in range(7) for text in ("--fail", f"{rank}@{5 + rank}")]
    result = springtide("simulate", "shop", *QUICK, *fails)
    assert result.exit_code == 1
    assert "1 of 8 ranks are left, and none of them can " in result.stderr
    assert "Traceback" not in result.stderr


def test_a_picture_is_drawn(springtide, tmp_path):
    pytest.importorskip("matplotlib")
    assert springtide("simulate", "shop", *QUICK, "--picture", "shop.png").exit_code == 0
    assert (tmp_path / "shop.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "Name a workload"),
        (("shopp",), "There is no workload 'shopp'; there are: gui"),
        (("shop", "--cluster", "h200"), "There is no cluster 'h200'; there are: h100-14b"),
        (("shop", "--set", "rollout_ranks=9"), "rollout_ranks = 9, but 'h100-7b' has 8 ranks"),
        (("shop", "--set", "rollout_rank=8"), "did you mean rollout_ranks"),
        (("shop", "--picture", "missing/shop.png"), "there is no folder missing; make it, or name another"),
        (("shop", "--picture", "shop.txt"), "a picture's name ends in one of .png"),
        (("shop", "--picture", "shop"), "a picture's name ends in one of .png"),
        (("shop", "--fail", "2"), "--fail 2: write RANK@SECONDS, such as 2@600"),
        (("shop", "--fail", "2@600-500"), "write RANK@SECONDS"),
        (("shop", "--fail", "8@600"), "'h100-7b' has no rank 8; its ranks are 0 to 7"),
        (("shop", "--fail", "1@600", "--bands"), "leave --fail out, or --bands"),
        (("shop", "--fail", "1@600", "--set", "pipelining=split-1"), "does not go with pipelining = split-1"),
    ],
)
def test_mistakes_are_one_sentence(springtide, arguments, problem):
    result = springtide("simulate", *arguments)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert "Traceback" not in result.stderr
