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
    ],
)
def test_mistakes_are_one_sentence(springtide, arguments, problem):
    result = springtide("simulate", *arguments)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert "Traceback" not in result.stderr
