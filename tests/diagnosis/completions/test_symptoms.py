"""What a reader of the completions would say of a run is what the diagnosis says."""

from pathlib import Path

import pytest

from diagnosis.completions.runs import healthy, prose, run
from springtide.diagnosis.completions.analysis import analyse, completion_series
from springtide.diagnosis.completions.sample import Samples
from springtide.diagnosis.verdict import Verdict


def report(samples):
    return analyse(Samples(source=Path("run"), framework="verl", samples=tuple(samples), rows=len(samples)))


def symptom(samples, name):
    return next(each for each in report(samples).symptoms if each.id == name)


def test_a_healthy_run_has_none():
    found = report(run(healthy))
    assert {each.id: each.verdict for each in found.symptoms if each.verdict is not Verdict.OK} == {}
    assert found.verdict is Verdict.OK


def test_a_format_that_is_learnt_is_at_most_watched():
    def learns(rng, share, group, member):
        made = healthy(rng, share, group, member)
        opened = "<think>\nOkay, let us see. " if rng.random() < share else ""
        return made | {"text": opened + made["text"]}

    found = report(run(learns))
    assert found.verdict is Verdict.WATCH
    assert [each.id for each in found.symptoms if each.verdict is Verdict.WATCH] == ["S16"]


def test_the_same_reply_to_every_prompt_is_sick_and_shown():
    praise = "Absolutely wonderful question, and thank you for asking it. " + " ".join(
        f"Every detail number {index} of what you say deserves the highest praise." for index in range(6)
    )

    def flatters(rng, share, group, member):
        hacked = rng.random() < 1.4 * share - 0.2
        text = praise + prose(rng, 6) if hacked else prose(rng, 60)
        return {"text": text, "reward": 0.9 if hacked else rng.random() * 0.5}

    found = symptom(run(flatters), "S16")
    assert found.verdict is Verdict.SICK
    assert 4 <= found.onset_step <= 8
    assert found.causes[0].id == "proxy-hacked"
    assert found.rows
    assert all(row.text.startswith("Absolutely wonderful question") for row in found.rows)


def test_a_reward_that_pays_length_is_sick_once_length_grows():
    def stretches(rng, share, group, member):
        words = int(30 + 200 * share + rng.randint(0, 40))
        return {"text": prose(rng, words), "reward": words / 300 + rng.gauss(0, 0.005)}

    found = symptom(run(stretches), "S13")
    assert found.verdict is Verdict.SICK
    assert found.evidence[0].values[0] > 0.9


def test_success_that_takes_long_is_no_length_hacking():
    def works(rng, share, group, member):
        right = rng.random() < 0.2 + 0.6 * share
        return {"text": prose(rng, 80 if right else 20), "reward": float(right)}

    assert symptom(run(works), "S13").verdict is Verdict.WATCH


def test_short_answers_that_pay_are_no_length_hacking():
    def concise(rng, share, group, member):
        right = rng.random() < 0.5
        return {"text": prose(rng, 30 if right else 200), "reward": float(right)}

    assert symptom(run(concise), "S13").verdict is Verdict.OK


def test_loops_that_earn_nothing_are_sick_and_paid_ones_watched():
    def collapses(rng, share, group, member):
        looping = rng.random() < 1.5 * share - 0.4
        text = "the the the " * 300 if looping else prose(rng, 60)
        return {"text": text, "reward": 0.0 if looping else float(rng.random() < 0.6)}

    def answers_first(rng, share, group, member):
        looping = rng.random() < 1.5 * share - 0.4
        text = prose(rng, 60) + (" I am done." * 400 if looping else "")
        return {"text": text, "reward": float(rng.random() < 0.6)}

    found = symptom(run(collapses), "S36")
    assert found.verdict is Verdict.SICK
    assert found.rows[0].text.endswith("the the the ")
    assert symptom(run(answers_first), "S36").verdict is Verdict.WATCH


def test_tables_and_lists_are_no_loops():
    def tabulates(rng, share, group, member):
        rows = "\n".join(f"| {index} | {rng.randint(0, 999)} | {prose(rng, 3)} |" for index in range(30))
        return {"text": "-" * 80 + "\n" + rows + "\n" + "=" * 80, "reward": float(rng.random() < 0.5)}

    assert symptom(run(tabulates), "S36").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("trick", "seen"),
    [
        ("class Any:\n    def __eq__(self, other):\n        return True\n", "makes everything equal"),
        ("import sys\nsys.exit(0)\n", "ends the process"),
        ("echo pass > tests/test_solution.py\n", "changes test files"),
        ("cat /app/grader.py\n", "looks for its grader"),
    ],
)
def test_a_trick_on_the_tests_that_spreads_and_pays_is_sick(trick, seen):
    def cheats(rng, share, group, member):
        cheating = rng.random() < 0.8 * share
        text = f"{prose(rng, 20)}\n{trick if cheating else 'print(solve())'}"
        return {"text": text, "reward": float(cheating or rng.random() < 0.3)}

    found = symptom(run(cheats), "S15")
    assert found.verdict is Verdict.SICK
    assert found.rows[0].why == seen
    assert trick.split("\n")[0][:20] in found.rows[0].text


def test_programs_that_always_exit_are_no_exploit():
    def exits(rng, share, group, member):
        return {
            "text": f"{prose(rng, 20)}\nimport sys\nsys.exit(0)\n",
            "reward": float(rng.random() < 0.3 + 0.4 * share),
        }

    assert symptom(run(exits), "S15").verdict is Verdict.OK


def test_wrong_answers_that_are_paid_in_full_are_sick_from_the_first_step_on():
    def pays_anything(rng, share, group, member):
        answer = rng.choice([7, 8, 9])
        paid = answer != 9
        return {"text": f"{prose(rng, 30)} \\boxed{{{answer}}}", "reward": float(paid), "truth": "7"}

    found = symptom(run(pays_anything), "S15")
    assert found.verdict is Verdict.SICK
    assert "the reference is 7" in found.rows[0].why


def test_right_answers_without_reward_are_shown():
    def strict(rng, share, group, member):
        wrong_form = rng.random() < 0.6
        text = (
            f"{prose(rng, 30)} The answer is 7.0." if wrong_form else f"{prose(rng, 30)} #### {rng.choice(['7', '12'])}"
        )
        return {"text": text, "reward": float(text.endswith("#### 7")), "truth": "#### 7"}

    found = symptom(run(strict), "S19")
    assert found.verdict is Verdict.SICK
    assert "The answer is 7.0." in found.rows[0].text


def test_completions_that_the_grader_cannot_read_are_watched():
    def unread(rng, share, group, member):
        return healthy(rng, share, group, member) | {"parsed": rng.random() > 0.3}

    assert symptom(run(unread), "S19").verdict is Verdict.WATCH


def test_another_script_than_the_prompts_is_watched():
    def drifts(rng, share, group, member):
        text = prose(rng, 40) + (
            "，我们先计算这个数字然后把它们加在一起得到最后的答案" * 3 if rng.random() < share else ""
        )
        return {"text": text, "reward": float(rng.random() < 0.5)}

    found = symptom(run(drifts), "S38")
    assert found.verdict is Verdict.WATCH
    assert "Han" in found.rows[0].why


def test_a_prompt_in_chinese_is_answered_in_chinese():
    def answers(rng, share, group, member):
        return {"prompt": "请计算下面的数字之和并给出答案", "text": "我们先计算这个数字然后得到答案" * 3, "reward": 1.0}

    assert symptom(run(answers), "S38").verdict is Verdict.OK


def test_one_step_is_too_little_to_compare():
    found = {each.id: each.verdict for each in report([each for each in run(healthy) if each.step == 0]).symptoms}
    assert found["S16"] is Verdict.INSUFFICIENT
    assert found["S38"] is Verdict.INSUFFICIENT


def test_dumps_without_text_say_so():
    samples = run(lambda rng, share, group, member: {"text": "", "tokens": rng.randint(5, 50), "reward": rng.random()})
    found = {each.id: each.verdict for each in report(samples).symptoms}
    assert found["S15"] is found["S16"] is found["S36"] is Verdict.UNAVAILABLE
    assert found["S13"] is Verdict.OK


def test_curves_have_a_value_for_every_step():
    series = completion_series(report(run(healthy)))
    assert list(series["completion/repetition"].steps) == list(range(10))
    assert series["completion/unique_answers"].values[0] > series["completion/unique_answers"].values[-1]
