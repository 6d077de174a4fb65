"""Prometheus text that was scraped from vLLM, SGLang or a trainer's own endpoint, once or many times into one file.

A scrape ends where a sample comes again. Engines and ranks are put together: counters and requests are summed, shares
averaged. Counters only say something by how they grow, so rates between scrapes are added under names of their own; one
that falls belongs to an engine that was started anew, and what it had counted before is kept.
"""

import math
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from springtide.diagnosis.log import Log, Note, Row
from springtide.diagnosis.readers.head import head, is_text
from springtide.diagnosis.readers.values import step_of

SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(\{.*\})?\s+([^\s{}]+)(?:\s+(-?\d{1,18}))?\s*")
TYPE = re.compile(r"#\s*TYPE\s+(\S+)\s+(\w+)")
KNOWN = re.compile(rb"^(?:ray_)?(?:vllm|sglang)[:_]|^trainer_(?:step|loss|entropy)\b", re.MULTILINE)
PREFIXES = (("ray_vllm_", "vllm:"), ("ray_sglang_", "sglang:"), ("vllm_", "vllm:"), ("sglang_", "sglang:"))
FRAMEWORKS = {"vllm:": "vllm", "sglang:": "sglang", "trainer_": "prime_rl"}
LIVE = re.compile(r"num_requests|_reqs")
"""Requests at work or in line, which are summed over engines. Other gauges are averaged, too."""

HITS = {"vllm:": ("prefix_cache_hits", "prefix_cache_queries"), "sglang:": ("cached_tokens", "prompt_tokens")}
"""Counters whose growth makes the share of prompt tokens that came from the cache."""
TOKENS = "generation_tokens"


def sniff(path: Path) -> bool:
    """A file of scrapes, or a folder in which there is nothing but such files."""
    if path.is_dir():
        files = _files(path)
        return len(files) > 1 and all(map(_is_scrape, files))
    return _is_scrape(path)


def _files(path: Path) -> list[Path]:
    with os.scandir(path) as entries:
        names = sorted(each.name for each in entries if not each.name.startswith("."))
    return [path / name for name in names]


def _is_scrape(path: Path) -> bool:
    if not path.is_file() or path.suffix.lower() not in ("", ".prom", ".txt", ".metrics", ".log"):
        return False
    data = head(path)
    if not data or not is_text(data) or not KNOWN.search(data):
        return False
    lines = [line for line in data.decode("utf-8", "replace").splitlines()[:-1] if line.strip()]
    fitting = sum(line.startswith("#") or SAMPLE.fullmatch(line) is not None for line in lines)
    return 10 * fitting >= 9 * len(lines)


@dataclass
class Scrape:
    samples: dict[tuple[str, str], float] = field(default_factory=dict)
    time: float | None = None


def read(path: Path) -> list[Log]:
    kinds: dict[str, str] = {}
    damage = [0]
    files = _files(path) if path.is_dir() else [path]
    scrapes = [scrape for file in files for scrape in _scrapes(file, kinds, damage)]
    rows = tuple(_rows(scrapes, kinds))
    names = {name for row in rows for name in row.values}
    frameworks = [each for prefix, each in FRAMEWORKS.items() if any(name.startswith(prefix) for name in names)]
    notes = [Note(text=f"{damage[0]} lines are not samples and were left out.")] if damage[0] else []
    if len(rows) == 1:
        notes.append(Note(text="One scrape only: counters say nothing of rates."))
    return [
        Log(
            source=path,
            container="prometheus",
            framework=frameworks[0] if frameworks else None,
            rows=rows,
            notes=tuple(notes),
            last_only=len(rows) == 1,
        )
    ]


def _scrapes(path: Path, kinds: dict[str, str], damage: list[int]) -> Iterator[Scrape]:
    scrape = Scrape()
    with path.open("r", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("#"):
                if typed := TYPE.match(line):
                    kinds[_name(typed[1])] = typed[2]
                continue
            found = SAMPLE.fullmatch(line.rstrip("\n")) if len(line) < 65536 else None
            if found is None:
                damage[0] += bool(line.strip())
                continue
            try:
                value = float(found[3].replace("Inf", "inf"))
            except ValueError:
                damage[0] += 1
                continue
            key = (_name(found[1]), found[2] or "")
            if key in scrape.samples:
                yield scrape
                scrape = Scrape()
            scrape.samples[key] = value
            if found[4] and scrape.time is None:
                scrape.time = int(found[4]) / 1000
    if scrape.samples:
        yield scrape


def _name(name: str) -> str:
    for written, meant in PREFIXES:
        if name.startswith(written):
            return meant + name.removeprefix(written)
    return name


def _rows(scrapes: list[Scrape], kinds: dict[str, str]) -> Iterator[Row]:
    """Counters run on over restarts of an engine; `grown` is by how much since the scrape before."""
    before: dict[tuple[str, str], float] = {}
    totals: dict[str, float] = defaultdict(float)
    last_time: float | None = None
    for index, scrape in enumerate(scrapes):
        grown: dict[str, float] = defaultdict(float)
        gauges: dict[str, list[float]] = defaultdict(list)
        for (name, labels), value in scrape.samples.items():
            if name.endswith(("_bucket", "_created")):
                continue
            if not _counts(name, kinds):
                gauges[name].append(value)
                continue
            past = before.get((name, labels), 0.0)
            grown[name] += value if math.isnan(past) or value < past else value - past
            before[name, labels] = value
        for name, by in grown.items():
            totals[name] += by
        values = {name: sum(found) if LIVE.search(name) else sum(found) / len(found) for name, found in gauges.items()}
        values |= {name: totals[name] for name in grown}
        if index:
            seconds = None if scrape.time is None or last_time is None else scrape.time - last_time
            values |= _rates(grown, seconds)
        last_time = scrape.time
        yield Row(values=values, step=step_of(values.get("trainer_step")), time=scrape.time)


def _counts(name: str, kinds: dict[str, str]) -> bool:
    base = re.sub(r"_(?:sum|count|total)$", "", name)
    kind = kinds.get(name) or kinds.get(base) or ""
    return kind in ("counter", "histogram", "summary") or (not kind and name.endswith(("_total", "_sum", "_count")))


def _rates(grown: dict[str, float], seconds: float | None) -> dict[str, float]:
    """Between two scrapes: the share of cache hits, tokens per second, and the mean of what is in a histogram."""
    rates = {}
    for prefix, (hits, queries) in HITS.items():
        asked = _either(grown, prefix + queries)
        if asked:
            rates[f"{prefix}hit_rate_between"] = _either(grown, prefix + hits) / asked
        made = _either(grown, prefix + TOKENS)
        if made and seconds and seconds > 0:
            rates[f"{prefix}generation_tokens_per_s"] = made / seconds
    for name, by in grown.items():
        count = grown.get(name.removesuffix("_sum") + "_count", 0.0)
        if name.endswith("_sum") and count:
            rates[name.removesuffix("_sum") + "/mean"] = by / count
    return rates


def _either(grown: dict[str, float], name: str) -> float:
    """Counters end in `_total` or do not, by the version of the client library."""
    return grown.get(f"{name}_total", grown.get(name, 0.0))
