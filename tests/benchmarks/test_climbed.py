"""How the retention benchmark tunes LRU."""

from hypothesis import given
from hypothesis import strategies as st

from retention_real import START, SWEEP, climbed


@given(peak=st.sampled_from(SWEEP))
def test_the_best_is_found_wherever_it_is(peak: int) -> None:
    best, tried = climbed(SWEEP, START, lambda number: -abs(SWEEP.index(number) - SWEEP.index(peak)))
    assert best == peak
    at = SWEEP.index(peak)
    assert set(SWEEP[max(0, at - 1) : at + 2]) <= set(tried)


def test_nothing_is_tried_twice() -> None:
    asked: list[int] = []

    def rate(number: int) -> float:
        asked.append(number)
        return number

    climbed(SWEEP, START, rate)
    assert len(asked) == len(set(asked))
