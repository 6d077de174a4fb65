"""How OpenMP's threads wait for each other between operations, which torch's library reads once, when it is loaded.

By default they spin for milliseconds while they are at most as many as cores, which multiplies the time of every step
as soon as anything else wants the cores, a sandboxed command included; and sleep at once as soon as they are more,
which two lanes' threads always are, and that costs a third of an engine whose operations last microseconds. A short
spin in both cases keeps most of the speed and harms nobody.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

SPINS = "1000"
"""Some ten microseconds by libgomp's own estimate (env.c), as long as the gap between two small operations. It is also
the most that libgomp spins when threads outnumber cores (`gomp_throttled_spin_count_var`)."""

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""What a user sets to decide this: then it stays as it is."""


def waiting(environment: Mapping[str, str], libraries: list[str]) -> dict[str, str]:
    """What to add to `environment` for a torch that brings `libraries` with it.

    Only GNU's OpenMP knows a spin count. Under another one, an active wait would have no end.
    """
    if any(name in environment for name in CHOICES):
        return {}
    if any(name.startswith("libgomp") for name in libraries):
        return {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": SPINS}
    return {"OMP_WAIT_POLICY": "PASSIVE"}


def torch_libraries() -> list[str]:
    """Names of the shared libraries in the installed torch, without loading any."""
    found = find_spec("torch")
    if found is None or found.origin is None:
        return []
    folder = Path(found.origin).parent / "lib"
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []
