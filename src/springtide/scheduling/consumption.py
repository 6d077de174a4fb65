"""Which groups the next step is made of.

In issue order, within a window, and never without those that would become too old by waiting: so no group is overtaken
for ever, and no token is staler than the bound.
"""

from collections.abc import Iterable

from springtide.scheduling.live_group import LiveGroup


def choose_batch(groups: Iterable[LiveGroup], size: int, *, window: int, oldest: int) -> list[LiveGroup] | None:
    """`size` of `groups`, which come in issue order; None while the step has to wait.

    All groups with a base version of `oldest` or less (the mandatory set), filled up with the earliest complete groups
    within the window. That the mandatory set fits into a batch takes `window` <= `size`: see scheduler.py.
    """
    live = list(groups)
    mandatory = [group for group in live if group.base_version <= oldest]
    if len(live) < size or not all(group.complete for group in mandatory):
        return None
    assert len(mandatory) <= size, "admission and the window bound the mandatory set by one batch"
    chosen = {group.id for group in mandatory}
    for group in live[: size + window]:
        if len(chosen) == size:
            break
        if group.complete:
            chosen.add(group.id)
    return [group for group in live if group.id in chosen] if len(chosen) == size else None
