"""Text of others on a terminal or a page: whatever would be obeyed there is spelled out, as in \\x1b.

A terminal obeys control characters, and what a model, an environment or another program's log says must give it no
orders.
"""

import re

_ORDERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Control characters but line feed and tab, those that turn the direction of writing, and what is no character."""


def visible(text: str) -> str:
    return _ORDERS.sub(lambda found: ascii(found[0])[1:-1], text)


def one_line(text: str, *, limit: int = 1000) -> str:
    """`text` visible and without line breaks, cut where it is longer than anything meant to be read."""
    if len(text) > limit:
        text = text[: limit - 3] + "..."
    return visible(" ".join(text.split()))
