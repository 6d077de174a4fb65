"""Springtide post-trains LLM agents with reinforcement learning."""

import os

__version__ = "0.1.0"

# Read once, when torch loads OpenMP. By default its threads spin while they wait, which multiplies the time of every
# step as soon as anything else wants the cores, a sandboxed command or a second lane included.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# oneDNN keeps a compiled kernel per shape, 1024 by default. Packed batches have ever new shapes: gigabytes of kernels
# that are never used again.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
