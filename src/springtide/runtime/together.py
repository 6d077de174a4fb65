"""Several pieces of work at once."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def together(works: list[Coroutine[Any, Any, T]]) -> list[T]:
    """All of them, or the error of the first that failed. Not by `asyncio.gather`, whose future would be reported as an
    error that nobody heard of wherever a run is broken off."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
