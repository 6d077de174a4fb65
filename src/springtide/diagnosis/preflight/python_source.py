"""Settings that stand in Python source: arguments of `GRPOConfig(...)` and its like, and dicts of settings.

The source is parsed and never run. Names that the module sets to plain values are filled in; what is computed is named
in a note.
"""

import ast
from typing import Any

CONFIGS = ("GRPOConfig", "RLOOConfig", "PPOConfig", "OnlineDPOConfig", "AsyncGRPOConfig", "LoraConfig", "ModelConfig")
TRAINERS = ("GRPOTrainer", "RLOOTrainer", "PPOTrainer", "AsyncGRPOTrainer")

LORA = {"r": "lora_r", "lora_alpha": "lora_alpha"}
"""What LoraConfig calls its rank."""

UNKNOWN = object()


def parse_python(text: str) -> tuple[dict[str, Any], list[str]]:
    """(values by name, notes). SyntaxError if it is not Python."""
    tree = ast.parse(text)
    known: dict[str, Any] = {}
    values: dict[str, Any] = {}
    computed: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = _plain(node.value, known)
            if value is not UNKNOWN:
                known[node.targets[0].id] = value
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            values |= _call(node, known, computed)
        elif isinstance(node, ast.Dict):
            values |= {name: value for name, value in _table(node, known).items() if name not in values}
    notes = [f"{name} is computed in the source and was not read." for name in dict.fromkeys(computed)]
    return values, notes


def _call(node: ast.Call, known: dict[str, Any], computed: list[str]) -> dict[str, Any]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in TRAINERS:
        return _trainer(node, known)
    if name not in CONFIGS:
        return {}
    found = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            continue
        key = LORA.get(keyword.arg, keyword.arg) if name == "LoraConfig" else keyword.arg
        value = _plain(keyword.value, known)
        if value is UNKNOWN:
            computed.append(key)
        else:
            found[key] = value
    return found


def _trainer(node: ast.Call, known: dict[str, Any]) -> dict[str, Any]:
    """How many reward functions there are, and which model."""
    found: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg == "reward_funcs":
            listed = isinstance(keyword.value, ast.List | ast.Tuple)
            found["reward_funcs"] = len(keyword.value.elts) if isinstance(keyword.value, ast.List | ast.Tuple) else 1
            if not listed and isinstance(keyword.value, ast.Name) and isinstance(known.get(keyword.value.id), list):
                found["reward_funcs"] = len(known[keyword.value.id])
        elif keyword.arg == "model" and isinstance(value := _plain(keyword.value, known), str):
            found["model_name_or_path"] = value
        elif keyword.arg == "eval_dataset" and not (
            isinstance(keyword.value, ast.Constant) and keyword.value.value is None
        ):
            found["eval_dataset"] = True
    return found


def _table(node: ast.Dict, known: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for key, item in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            value = _plain(item, known)
            if value is not UNKNOWN:
                found[key.value] = value
    return found


def _plain(node: ast.expr, known: dict[str, Any]) -> Any:
    """The value of a literal, of a name that stands for one, and of plain arithmetic; else UNKNOWN."""
    if isinstance(node, ast.Name):
        return known.get(node.id, UNKNOWN)
    if isinstance(node, ast.BinOp):
        return _arithmetic(node, known)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return UNKNOWN


def _arithmetic(node: ast.BinOp, known: dict[str, Any]) -> Any:
    left, right = _plain(node.left, known), _plain(node.right, known)
    if not all(isinstance(side, int | float) and not isinstance(side, bool) for side in (left, right)):
        return UNKNOWN
    try:
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right
            case ast.FloorDiv():
                return left // right
    except (ZeroDivisionError, OverflowError):
        pass
    return UNKNOWN
