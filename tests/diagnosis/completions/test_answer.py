"""Answers as a person reads them, and when two are the same."""

import pytest

from springtide.diagnosis.completions.answer import final_answer, same_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("First \\boxed{3}, no: \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
        ("Sum.\n#### 1,234", "1234"),
        ("<answer> Paris. </answer> done", "paris"),
        ("So the answer is **42**.", "42"),
        ("We add them.\n\n17\n", "17"),
        ("", ""),
    ],
)
def test_the_last_thing_that_is_marked_counts(text, answer):
    assert final_answer(text).text == answer


@pytest.mark.parametrize(
    ("text", "truth", "same"),
    [
        ("\\boxed{72}", "It takes 8 * 9 steps.\n#### 72", True),
        ("\\boxed{72.0}", "72", True),
        ("\\boxed{1,234}", "1234", True),
        ("\\boxed{12 cm}", "12", True),
        ("\\boxed{71}", "72", False),
        ("\\boxed{5,6}", "56", None),
        ("\\boxed{1/2}", "0.5", None),
        ("\\boxed{x}", "y", None),
        ("no mark 72", "71", None),
        ("\\boxed{72}", "", None),
    ],
)
def test_what_cannot_be_told_from_the_text_is_left_open(text, truth, same):
    assert same_answer(final_answer(text), truth) is same
