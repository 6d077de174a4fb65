"""Calling what a user's class implements, where that is plain code and not a coroutine.

A class that says that it blocks runs on threads. The others are called in place, on the loop that serves all episodes,
and watched: one that keeps the loop waiting is named, once, with what to do about it.
"""

import logging
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from springtide.environments.thread import on_thread

LOGGER = logging.getLogger("springtide.environments")

T = TypeVar("T")

SLOW = 0.1
"""Seconds that a call may keep all other episodes waiting."""

_warned: set[str] = set()
"""Classes that a warning named already."""


class Hooks:
    """Calls the hooks of one class. `owner` is its name, `remedy` how its author says that it blocks."""

    def __init__(self, owner: str, *, blocking: bool = False, remedy: str = "make it faster") -> None:
        self.owner = owner
        self._blocking = blocking
        self._remedy = remedy

    async def call(self, name: str, hook: Callable[[], T]) -> T:
        """What `hook` returns or raises; `name` is what its author calls it."""
        if self._blocking:
            return await on_thread(hook)
        began = monotonic()
        try:
            return hook()
        finally:
            self._watch(name, monotonic() - began)

    def _watch(self, name: str, seconds: float) -> None:
        if seconds < SLOW or self.owner in _warned:
            return
        _warned.add(self.owner)
        LOGGER.warning(
            "%s.%s took %.1f s on the loop that serves all episodes: %s.", self.owner, name, seconds, self._remedy
        )
