import subprocess
import sys

import pytest


@pytest.fixture
def python_without_torch():
    """Runs code in a fresh interpreter that cannot import torch."""

    def run(code):
        blocked = "import sys\nsys.modules['torch'] = None\n" + code
        subprocess.run([sys.executable, "-c", blocked], check=True, capture_output=True, timeout=60)

    return run
