"""Commands that need more than the base installation say so before they do anything."""

from importlib.util import find_spec

from springtide.core.errors import MissingExtraError

TRAIN = ("torch", "transformers", "tokenizers", "safetensors", "jinja2")
"""What the extra `train` brings and no run can do without."""


def require_train(feature: str) -> None:
    """MissingExtraError unless the extra `train` is installed. Imports nothing."""
    if any(find_spec(package) is None for package in TRAIN):
        raise MissingExtraError(feature=feature, extra="train")
