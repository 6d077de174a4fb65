import json

import pytest

QUICK = ("--steps", "1", "--warm-steps", "0", "--groups-per-step", "8")


def test_a_plan_is_told_with_its_table_while_it_works(springtide):
    result = springtide("plan", "shop", "--target", "1000", *QUICK)
    assert result.exit_code == 0
    assert "rollout + training" in result.stdout
    assert "reach" in result.stdout
    assert "Simulating 3 ranks" in result.stderr


def test_with_json_only_the_object_is_on_standard_output(springtide):
    result = springtide("plan", "shop", "--target", "1000", *QUICK, "--json")
    told = json.loads(result.stdout)
    answer = next(candidate for candidate in told["candidates"] if candidate["ranks"] == told["ranks"])
    assert answer["goodput_tokens_per_s"] >= told["target_tokens_per_s"] == 1000
    assert told["strategy"]["retention"] == "break-even"
    assert told["groups_per_step"] == 8


def test_a_target_out_of_reach_is_a_failure_with_its_reason(springtide):
    result = springtide("plan", "shop", "--target", "100000", *QUICK, "--json")
    assert result.exit_code == 1
    assert "100,000 trained tokens per second are not reached: the staleness bound K = 1" in result.stderr
    assert "Traceback" not in result.stderr
    told = json.loads(result.stdout)
    assert (told["ranks"], told["limit"]) == (None, "staleness")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "Name a workload"),
        (("shop",), "--target is missing"),
        (("shopp", "--target", "9"), "There is no workload 'shopp'"),
        (("shop", "--target", "-9"), "target = -9 is no rate"),
        (("shop", "--target", "9", "--ranks-max", "1"), "ranks_max = 1 is less than a run needs"),
        (("shop", "--target", "9", "--set", "rollout_rank=8"), "did you mean rollout_ranks"),
    ],
)
def test_mistakes_are_one_sentence(springtide, arguments, problem):
    result = springtide("plan", *arguments)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert "Traceback" not in result.stderr


def test_bands_are_told_and_are_in_the_json(springtide):
    result = springtide("simulate", "shop", *QUICK, "--bands", "--json")
    assert result.exit_code == 0
    assert "at -30%" in result.stdout
    told = json.loads(result.stdout.splitlines()[-1])["bands"]
    changes = [max(abs(band["change_lower"]), abs(band["change_higher"])) for band in told]
    assert changes == sorted(changes, reverse=True)
    assert {"decode", "training", "environment latency"} <= {band["what"] for band in told}
