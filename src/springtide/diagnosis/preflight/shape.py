"""What a model is made of, as far as memory goes: from its folder, from a table of common ones, or from the size in its
name."""

import json
import re
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from springtide.diagnosis.preflight.plan import Plan
from springtide.diagnosis.preflight.value import as_number


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder with gated feed-forward layers. `parameters` where only the size is known: then the rest is 0. `found`:
    where this comes from."""

    parameters: float
    layers: int = 0
    hidden: int = 0
    kv_width: int = 0
    vocabulary: int = 0
    found: str = ""

    @property
    def known(self) -> bool:
        return self.layers > 0


def shape_of(plan: Plan) -> Shape | None:
    """None where nothing says how large the model is."""
    if plan.framework == "springtide" and plan.text("model_type") == "tiny":
        names = ("layers", "hidden", "heads", "kv_heads", "intermediate", "vocabulary")
        numbers = {name: plan.whole(f"model_{name}") for name in names}
        if all(value is not None for value in numbers.values()):
            layers, hidden, heads, kv_heads, intermediate, vocabulary = (int(numbers[name] or 0) for name in names)
            return _decoder(
                layers, hidden, heads, kv_heads, hidden // max(heads, 1), intermediate, vocabulary, True, "model"
            )
    name = plan.text("model")
    if not name:
        return None
    return from_folder(Path(name).expanduser()) or from_table(name) or from_name(name)


def from_folder(path: Path) -> Shape | None:
    """By the `config.json` of a Hugging Face folder; mixtures of experts are not counted."""
    try:
        read = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    inner = read.get("text_config", read) if isinstance(read, dict) else {}
    if not isinstance(inner, dict) or any(
        name in inner for name in ("num_experts", "num_local_experts", "n_routed_experts")
    ):
        return None
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
    numbers = [as_number(inner.get(name)) for name in names]
    if any(value is None or value < 1 for value in numbers):
        return None
    layers, hidden, heads, intermediate, vocabulary = (int(value or 0) for value in numbers)
    kv_heads = int(as_number(inner.get("num_key_value_heads")) or heads)
    width = int(as_number(inner.get("head_dim")) or hidden // heads)
    tied = bool(inner.get("tie_word_embeddings", False))
    return _decoder(layers, hidden, heads, kv_heads, width, intermediate, vocabulary, tied, str(path / "config.json"))


@cache
def _common() -> dict[str, dict[str, Any]]:
    text = (files("springtide.diagnosis") / "preflight" / "models.toml").read_text()
    return tomllib.loads(text)


def from_table(name: str) -> Shape | None:
    """A common model, also under the name of one that was trained from it."""
    plain = _squeezed(name)
    for model, entry in _common().items():
        family, _, size = model.rpartition("-")
        if re.search(rf"{re.escape(_squeezed(family))}[a-z]*{re.escape(_squeezed(size))}(?!a\d)", plain):
            return _decoder(**entry, found=f"the shape of {model}")
    return None


def _squeezed(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def from_name(name: str) -> Shape | None:
    """By a size such as 7B or 0.5b in it."""
    sizes = re.findall(r"(?<![a-zA-Z0-9.])(\d+(?:\.\d+)?)\s?([bBmM])(?![a-zA-Z0-9])", Path(name).name)
    if not sizes:
        return None
    number, unit = sizes[0]
    return Shape(parameters=float(number) * (1e9 if unit in "bB" else 1e6), found=f'"{number}{unit}" in its name')


def of_size(parameters: float) -> Shape:
    return Shape(parameters=parameters, found="--parameters")


def _decoder(
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_width: int,
    intermediate: int,
    vocabulary: int,
    tied: bool,
    found: str,
) -> Shape:
    """Norms and biases are left out: they are thousandths."""
    attention = 2 * hidden * head_width * (heads + kv_heads)
    layer = attention + 3 * hidden * intermediate
    embeddings = vocabulary * hidden * (1 if tied else 2)
    return Shape(
        parameters=float(layers * layer + embeddings),
        layers=layers,
        hidden=hidden,
        kv_width=kv_heads * head_width,
        vocabulary=vocabulary,
        found=found,
    )
