"""The names of the policies of retention, as settings give them."""

from math import inf

REAL_FORMS = "lru, lru-ordered, cap-SHARE, ttl-SECONDS, decay-SECONDS, min-waste, residency-SHARE, break-even"
FORMS = f"{REAL_FORMS}, oracle"
"""What a simulation takes."""


def check(text: str, forms: str = FORMS) -> None:
    """ValueError, which says what there is (`forms`), if no policy is called that."""
    name, number = parts(text)
    plain = name in ("lru", "lru-ordered", "min-waste", "oracle", "break-even")
    limit = {"cap": 1.0, "residency": 1.0, "ttl": inf, "decay": inf}.get(name)
    if not (plain and number is None) and not (limit is not None and number is not None and 0 < number <= limit):
        raise ValueError(f"'{text}' is none of {forms} (SHARE above 0 and at most 1, SECONDS above 0)")


def parts(text: str) -> tuple[str, float | None]:
    """The name, and the number behind its last hyphen if there is one."""
    name, _, last = text.rpartition("-")
    try:
        return name, float(last)
    except ValueError:
        return text, None
