import asyncio
import subprocess
import sys
import threading

import pytest

from springtide.environments.thread import on_thread


def raising(error):
    raise error


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration("end"), SystemExit(3)])
def test_what_a_hook_raises_is_raised(error):
    async def call():
        with pytest.raises((type(error), RuntimeError)):
            await on_thread(lambda: raising(error))
        return await on_thread(lambda: "still there")

    assert asyncio.run(call()) == "still there"


def test_hooks_that_hang_keep_no_other_waiting():
    release = threading.Event()

    async def call():
        hung = [asyncio.ensure_future(on_thread(release.wait)) for _ in range(100)]
        await asyncio.sleep(0)
        assert await on_thread(lambda: 7) == 7
        for task in hung:
            task.cancel()
        await asyncio.gather(*hung, return_exceptions=True)

    asyncio.run(call())
    release.set()


def test_a_hook_that_hangs_does_not_keep_the_process_from_ending():
    script = (
        "import asyncio, threading\n"
        "from springtide.environments.thread import on_thread\n"
        "async def call():\n"
        "    hung = asyncio.ensure_future(on_thread(threading.Event().wait))\n"
        "    await asyncio.wait({hung}, timeout=0.01)\n"
        "asyncio.run(call())\n"
        "print('over')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "over\n"
