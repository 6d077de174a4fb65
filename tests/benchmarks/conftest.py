"""Makes the parts of benchmarks importable, behind everything else: they share names with folders of tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
