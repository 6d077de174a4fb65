"""Springtide post-trains LLM agents with reinforcement learning."""

import os

from springtide.openmp import torch_libraries, waiting

__version__ = "0.1.0"

os.environ.update(waiting(os.environ, torch_libraries()))

# oneDNN keeps a compiled kernel per shape, 1024 by default. Packed batches have ever new shapes: gigabytes of kernels
# that are never used again.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
