"""Family `log`: count and report over one or two log files.

Level 1: answer with the number of lines of a severity and a host. Level 2: write it to a file. Level 3: two hosts, one
line each.
"""

import random
from collections.abc import Sequence

from springtide.environments.shell.puzzle import NAMES, NOTHING, Puzzle, Script, Turn

_SEVERITIES = ("ERR", "WARN", "INFO")


def draw_log(rng: random.Random, level: int) -> Puzzle:
    hosts = rng.sample(NAMES, 4)
    severity = rng.choice(_SEVERITIES)
    other = rng.choice([name for name in _SEVERITIES if name != severity])
    files = ("log", "log.1")[: rng.randint(1, 2)]
    asked = hosts[: 2 if level == 3 else 1]
    lines = _lines(rng, files, hosts, asked, severity, other)

    def count(pattern: str, files: Sequence[str]) -> int:
        return sum(pattern in line for file in files for line in lines[file])

    def grep(pattern: str, files: Sequence[str], then: str = "") -> str:
        return f"cat {' '.join(files)}|grep -c '{pattern}'{then}"

    def report(severity: str, files: Sequence[str], *, second: str = ">>") -> Script:
        """Count lines of `severity` (of any, if empty) and report as the level wants."""
        patterns = [f"{severity} {host}".strip() for host in asked]
        counts = [str(count(pattern, files)) for pattern in patterns]
        listed = Turn("ls", "\n".join(lines))
        if level == 1:
            return (listed, Turn(grep(patterns[0], files), counts[0]), Turn(f"answer {counts[0]}"))
        arrows = (" >out", f" {second}out")
        written = [Turn(grep(p, files, arrow), NOTHING) for p, arrow in zip(patterns, arrows, strict=False)]
        kept = counts[-1:] if second == ">" else counts
        return (listed, *written, Turn("cat out", "\n".join(kept)), Turn("done"))

    flaws = {"does not filter": report("", files), "counts another severity": report(other, files)}
    if len(files) > 1:
        flaws = {"does not filter": report("", files), "forgets a log": report(severity, files[:1])}
    if level == 3:
        flaws["overwrites"] = report(severity, files, second=">")
    return Puzzle(
        prompt=_prompt(level, severity, asked),
        files={file: "".join(f"{line}\n" for line in lines[file]).encode() for file in files},
        target="answer" if level == 1 else "out",
        expected=tuple(count(f"{severity} {host}", files) for host in asked),
        oracle=report(severity, files),
        flaws=flaws,
    )


def _prompt(level: int, severity: str, hosts: Sequence[str]) -> str:
    what = f"{severity} lines of {' and of '.join(hosts)} in all logs"
    if level == 1:
        return f"Count the {what}."
    return f"Write the number of {what} to out{', one per line' if level == 3 else ''}."


def _lines(
    rng: random.Random, files: Sequence[str], hosts: Sequence[str], asked: Sequence[str], severity: str, other: str
) -> dict[str, list[str]]:
    """Lines per file. Each file has lines of each asked host, of the asked severity and, in other numbers, of `other`,
    so that every mistake shows in the count."""
    lines: dict[str, list[str]] = {file: [] for file in files}
    for host in asked:
        right = rng.sample(range(1, 5), len(files))
        wrong = rng.choice([number for number in range(1, 5) if number != sum(right)])
        for file, number in zip(files, right, strict=True):
            lines[file] += [f"{severity} {host}"] * number
        lines[files[-1]] += [f"{other} {host}"] * wrong
    for file in files:
        lines[file] += [
            f"{rng.choice(_SEVERITIES)} {rng.choice(hosts[len(asked) :])}" for _ in range(rng.randint(2, 6))
        ]
        rng.shuffle(lines[file])
    return lines
