import asyncio

from springtide.simulation.barrier import TurnBarrier
from springtide.simulation.virtual_loop import run_virtual


def story(turns):
    """When each episode began each of its turns, whose seconds are given."""
    begun = {name: [] for name in turns}

    async def play(barrier, name):
        for seconds in turns[name]:
            await barrier.arrive()
            begun[name].append(asyncio.get_running_loop().time())
            await asyncio.sleep(seconds)
        barrier.leave()

    async def main():
        barrier = TurnBarrier()
        for _ in turns:
            barrier.enter()
        await asyncio.gather(*(play(barrier, name) for name in turns))

    run_virtual(main)
    return begun


def test_the_slowest_sets_the_pace_of_a_turn_until_it_is_out():
    begun = story({"a": [1, 1, 1, 1], "b": [5, 2], "c": [3, 1, 4]})
    start = begun["a"][0]
    assert [time - start for time in begun["a"]] == [0, 5, 7, 11]
    assert [time - start for time in begun["b"]] == [0, 5]
    assert [time - start for time in begun["c"]] == [0, 5, 7]
