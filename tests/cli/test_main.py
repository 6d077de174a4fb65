import errno
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from springtide import __version__
from springtide.cli import recipe as recipe_commands
from springtide.core.errors import RunDamagedError, StorageFullError, UnsafeSandboxError

COMMANDS = [
    "train",
    "sft",
    "status",
    "show",
    "report",
    "export",
    "sandbox",
    "recipe",
    "recipe list",
    "recipe show",
    "recipe check",
]


def test_the_command_line_imports_neither_torch_nor_plots():
    code = (
        "import sys\nimport springtide.cli.main\n"
        "heavy = {'torch', 'transformers', 'matplotlib', 'tensorboard'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_version_is_said(springtide):
    result = springtide("--version")
    assert (result.exit_code, result.stdout) == (0, f"springtide {__version__}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(springtide, command):
    for option in ("--help", "-h"):
        result = springtide(*command.split(), option)
        assert result.exit_code == 0
        assert "Examples" in result.stdout
        assert f"springtide {command.split()[0]}" in result.stdout


def test_help_states_the_exit_codes(springtide):
    text = springtide("--help").stdout
    for part in (
        "0 done",
        "2 wrong usage",
        "3 run damaged",
        "4 only an unsafe sandbox",
        "5 disk full",
        "130 interrupted",
    ):
        assert part in text


@pytest.mark.parametrize("arguments", [("nonsense",), ("train", "--bogus"), ("status",), ("recipe", "show")])
def test_wrong_usage_exits_with_2(springtide, arguments):
    assert springtide(*arguments).exit_code == 2


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RunDamagedError("The journal is torn."), 3, "The journal is torn."),
        (UnsafeSandboxError("Only landlock is left."), 4, "Only landlock is left."),
        (StorageFullError("The disk is full."), 5, "The disk is full."),
        (OSError(errno.ENOSPC, "No space left", "runs/x"), 5, "The disk is full (runs/x)"),
        (KeyboardInterrupt(), 130, "Interrupted."),
    ],
)
def test_errors_that_are_the_interface_are_one_sentence_and_a_stable_code(springtide, monkeypatch, error, code, said):
    def fail(*_):
        raise error

    monkeypatch.setattr(recipe_commands, "load_recipe", fail)
    result = springtide("recipe", "check", "quickstart")
    assert result.exit_code == code
    assert result.stdout == ""
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_bug_is_not_hidden(springtide, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(recipe_commands, "load_recipe", fail)
    with pytest.raises(ZeroDivisionError):
        springtide("recipe", "check", "quickstart")


def test_the_installed_program_gives_no_traceback_for_a_mistake(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "from springtide.cli.main import main; main()", "train", "quickstart", "--set", "sed=1"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("springtide: quickstart: Unknown setting sed = 1")
    assert "nearest valid name is seed" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ignored", [False, True])
def test_a_polite_kill_is_a_ctrl_c_also_where_the_shell_ignores_that(ignored):
    script = (
        "import signal\n"
        f"if {ignored}: signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from springtide.cli import main\n"
        "main.app = lambda prog_name: signal.raise_signal(signal.SIGTERM)\n"
        "try:\n    main.main()\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
        "assert {signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)} == {signal.SIG_DFL}\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "interrupted\n"


def test_a_file_without_permission_is_one_sentence(springtide, monkeypatch):
    def refuse():
        raise PermissionError(errno.EACCES, "Permission denied", "runs/x/lock")

    monkeypatch.setattr(recipe_commands, "builtin_recipes", refuse)
    result = springtide("recipe", "list")
    assert result.exit_code == 2
    assert "springtide: runs/x/lock cannot be used: Permission denied" in result.stderr


def test_a_ctrl_c_while_the_command_line_is_imported_is_an_interruption_like_any_other(tmp_path):
    script = (
        "import sys\n"
        "class Press:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'springtide.cli.main': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Press())\n"
        "from springtide.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "springtide: Interrupted.\n")


def test_the_installed_program_is_the_module():
    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["springtide"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"springtide {__version__}\n"
