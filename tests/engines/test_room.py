"""Who keeps the books of room in the scheduler counts it as the engine hands it out."""

import random

import pytest

from engines.episodes import engine, request, text
from springtide.core.sampling import SamplingParams
from springtide.engines.turns import reserved
from springtide.scheduling.residency import Residency
from springtide.scheduling.retention import Recency

CAPACITY = 2048


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_let_in_runs_at_once_and_keeps_its_place_until_it_ends(seed: int) -> None:
    luck = random.Random(seed)
    player = engine(capacity_tokens=CAPACITY, prefill_chunk=512)
    books = Residency(
        Recency(),
        capacity=CAPACITY,
        host=0,
        max_batch=64,
        decode_steps=8,
        reserved=reserved,
        shares_prompts=False,
    )
    params = SamplingParams(max_tokens=40, temperature=0.0)
    waiting = {}
    for number in range(24):
        turn = request(text(number, luck.randrange(20, 200)), group=number // 4, slot=number % 4, params=params)
        waiting[turn.member] = turn
        books.ready(turn.member, 0, turn.length, 0.0)
    chosen = books.plan(0.0, player.stats().hot_tokens).submit
    assert 0 < len(chosen) < len(waiting), "some fit, not all"
    player.submit([waiting[member] for member in chosen])
    ended = []
    while player.has_work():
        ended += player.step(max_decode_steps=8)
    stats = player.stats()
    assert len(ended) == len(chosen)
    assert (stats.preemptions, stats.demotions, stats.reprefilled) == (0, 0, 0), "the engine moved nobody by itself"
