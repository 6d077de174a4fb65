import json
import sys
from types import ModuleType

import msgspec
import pytest

from springtide.ports.sandbox import SandboxLevel


class Report(msgspec.Struct, frozen=True, kw_only=True):
    level: SandboxLevel
    usable: bool
    safe: bool
    reason: str = ""


@pytest.fixture
def host(monkeypatch):
    """Sets which levels this machine has."""

    def offer(*usable):
        module = ModuleType("springtide.sandbox")
        safe = {SandboxLevel.NAMESPACES, SandboxLevel.USER_NAMESPACES, SandboxLevel.BUBBLEWRAP}
        module.probe = lambda: [
            Report(level=level, usable=level in usable, safe=level in safe, reason="" if level in usable else "refused")
            for level in SandboxLevel
        ]
        monkeypatch.setitem(sys.modules, "springtide.sandbox", module)

    return offer


def test_the_strongest_safe_level_is_named(springtide, host):
    host(SandboxLevel.USER_NAMESPACES, SandboxLevel.LANDLOCK)
    result = springtide("sandbox")
    assert result.exit_code == 0
    assert "A run uses user_namespaces." in result.stdout
    for level in SandboxLevel:
        assert level.value in result.stdout


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_only_unsafe_levels_exit_with_4(springtide, host, option):
    host(SandboxLevel.LANDLOCK, SandboxLevel.NONE)
    result = springtide("sandbox", *option)
    assert result.exit_code == 4
    assert "no isolation that is safe" in result.stderr


def test_a_reason_is_shown_as_it_is(springtide, monkeypatch):
    module = ModuleType("springtide.sandbox")
    reason = "[bold]mount[/bold] of [a] failed"
    module.probe = lambda: [
        Report(level=SandboxLevel.NAMESPACES, usable=False, safe=True, reason=reason),
        Report(level=SandboxLevel.USER_NAMESPACES, usable=True, safe=True),
    ]
    monkeypatch.setitem(sys.modules, "springtide.sandbox", module)
    assert reason in springtide("sandbox").stdout


def test_the_levels_as_json(springtide, host):
    host(SandboxLevel.NAMESPACES)
    document = json.loads(springtide("sandbox", "--json").stdout)
    assert document["level"] == "namespaces"
    assert [level["usable"] for level in document["levels"]] == [True, False, False, False, False]
