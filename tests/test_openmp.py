import subprocess
import sys

import pytest

from springtide.openmp import torch_libraries, waiting

GNU = ["libtorch.so", "libgomp.so.1", "libgomp-a34b3233.so.1"]
OTHER = ["libtorch.dylib", "libomp.dylib"]


def test_a_short_spin_only_where_it_ends():
    assert waiting({}, GNU) == {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "1000"}
    assert waiting({"HOME": "/"}, GNU[:1] + GNU[2:]) == waiting({}, GNU)
    assert waiting({}, OTHER) == {"OMP_WAIT_POLICY": "PASSIVE"}
    assert waiting({}, []) == {"OMP_WAIT_POLICY": "PASSIVE"}


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
@pytest.mark.parametrize("libraries", [GNU, OTHER])
def test_a_users_choice_stays(name, libraries):
    assert waiting({name: "7"}, libraries) == {}


def test_it_is_set_before_torch_is_loaded():
    """Of this very installation; without loading torch to find out."""
    program = "import os, sys, springtide; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], env={}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [waiting({}, torch_libraries())["OMP_WAIT_POLICY"], "False"]
