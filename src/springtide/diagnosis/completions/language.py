"""Does a completion change into a script that its prompt does not use, and does it still think between its tags?

Scripts are counted, not languages: what can be told from single letters alone cannot be mistaken.
"""

import re

from springtide.diagnosis.completions.sample import Sample

SWITCHED = 0.1
"""Share of letters in other scripts from which a completion counts as switched."""

FEWEST_LETTERS = 10

SCRIPTS = {
    "Latin": re.compile(r"[A-Za-z\u00c0-\u024f]"),
    "Cyrillic": re.compile(r"[\u0400-\u04ff]"),
    "Arabic": re.compile(r"[\u0600-\u06ff]"),
    "Hebrew": re.compile(r"[\u0590-\u05ff]"),
    "Devanagari": re.compile(r"[\u0900-\u097f]"),
    "Thai": re.compile(r"[\u0e00-\u0e7f]"),
    "Kana": re.compile(r"[\u3040-\u30ff]"),
    "Hangul": re.compile(r"[\uac00-\ud7af]"),
    "Han": re.compile(r"[\u4e00-\u9fff]"),
}
"""Greek is left out: mathematics uses it in all languages."""

_THOUGHT = re.compile(r"</?(?:think|thinking|reasoning|scratchpad)>", re.IGNORECASE)


def letters(text: str) -> dict[str, int]:
    """Letters by script."""
    if text.isascii():
        return {"Latin": len(SCRIPTS["Latin"].findall(text))}
    return {name: count for name, pattern in SCRIPTS.items() if (count := len(pattern.findall(text)))}


def switches(sample: Sample) -> bool | None:
    """None where the prompt is not known, or there is nothing to read."""
    if not sample.text or not sample.prompt:
        return None
    found = letters(sample.text)
    own = {name for name, count in letters(sample.prompt).items() if count}
    if "Kana" in own:
        own.add("Han")
    foreign = sum(count for name, count in found.items() if name not in own and name != "Latin")
    return foreign >= FEWEST_LETTERS and foreign > SWITCHED * sum(found.values())


def thinks(sample: Sample) -> bool | None:
    """Whether there is a tag of thought in it."""
    return _THOUGHT.search(sample.text) is not None if sample.text else None
