"""What every benchmark prints and writes: options, the machine it ran on, spread, a table, one JSON line."""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "results"


def parser(description: str | None) -> argparse.ArgumentParser:
    """With `--seed`, `--quick` and `--json`, which every benchmark has."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--quick", action="store_true", help="less of everything, in under a minute")
    made.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    return made


def machine(*packages: str) -> dict[str, Any]:
    """Where and with what this ran. `load` is the load average of 1, 5 and 15 minutes at the time of the call."""
    versions = {}
    for package in ("springtide", "torch", "transformers", *packages):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "load": list(os.getloadavg()),
        "versions": versions,
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, extremes and number of `values`."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "n": len(values)}


def shown(found: dict[str, float], digits: int = 2) -> str:
    """`spread` for a table: median and, in brackets, extremes."""
    return f"{found['median']:,.{digits}f} ({found['low']:,.{digits}f} to {found['high']:,.{digits}f})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Plain text; the first column is flush left, the others right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, *rows)
    )


def say(text: str) -> None:
    """Progress, out of the way of the result."""
    print(text, file=sys.stderr, flush=True)


def finish(name: str, *, figures: dict[str, Any], record: dict[str, Any], options: argparse.Namespace) -> None:
    """Write `results/NAME.json` (a quick run has its own file, which is not kept) and print the figures if asked to."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / (f"{name}.quick.json" if options.quick else f"{name}.json")
    label = {"label": "L0", "seed": options.seed, "quick": options.quick}
    path.write_text(json.dumps({**label, "figures": figures, **record}, indent=1) + "\n")
    if options.json:
        print(json.dumps(figures))
