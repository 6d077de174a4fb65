"""The example of the documentation: a policy of one's own in a file, compared with the others."""

import importlib.util
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "my_policy.py"


def test_the_example_is_short_and_its_policy_decides(capsys):
    spec = importlib.util.spec_from_file_location("my_policy", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.compare(groups_per_step=16, steps=1)
    assert set(found) == {"lru", "lru-ordered", "break-even", "mine"}
    assert len(set(found.values())) == 4
    assert capsys.readouterr().out.count("hit rate") == 4
    assert len(EXAMPLE.read_text().splitlines()) < 40
