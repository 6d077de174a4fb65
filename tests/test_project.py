"""What holds for the project as a whole: types, style, import contracts, and what starts without torch."""

import ast
import gc
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_are_strict():
    run(sys.executable, "-m", "mypy")


def test_style():
    run(sys.executable, "-m", "ruff", "check", "src", "tests", "benchmarks")
    run(sys.executable, "-m", "ruff", "format", "--check", "src", "tests", "benchmarks")


def test_rooms_import_only_what_stands_above_them():
    run(str(Path(sys.executable).with_name("lint-imports")))


@pytest.mark.parametrize(
    "module",
    [
        "springtide.cli.main",
        "springtide.runtime.controller",
        "springtide.evaluation.report",
        "springtide.diagnosis.examine",
        "springtide.diagnosis.reports.page",
        "springtide.sandbox",
    ],
)
def test_starts_without_torch(module):
    program = f"import sys, {module}; sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    run(sys.executable, "-c", program)


def test_files_and_functions_stay_small(request):
    large = []
    gc.collect()
    gc.disable()  # Collecting what earlier tests left, in the middle of `ast.parse`, is a SystemError in Python 3.11.
    request.addfinalizer(gc.enable)
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text()
        if text.count("\n") > 400:
            large.append(f"{path.name}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno >= 60:
                large.append(f"{path.name}: {node.name}, {node.end_lineno - node.lineno + 1} lines")
    assert large == []
