import pytest

from springtide.core.errors import UsageError
from springtide.simulation.strategy import Strategy, strategy_from


def test_settings_are_read_as_toml_or_as_words():
    assert strategy_from(["mode=sync", "rollout_ranks = 3", "reference=false", 'kv="keep"']) == Strategy(
        mode="sync", rollout_ranks=3, reference=False, kv="keep"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("rollout_rank=3", "there is no setting 'rollout_rank'; did you mean rollout_ranks"),
        ("rollout_ranks", "write it as setting=value"),
        ("rollout_ranks=many", "rollout_ranks takes "),
        ("rollout_ranks=-1", "rollout_ranks takes "),
        ("rollout_ranks=true", "rollout_ranks takes "),
        ("retention=fifo", "retention takes one of lru, .*break-even"),
        ("retention=cap-1.5", "retention takes one of lru, .*cap-SHARE"),
        ("retention=ttl", "retention takes one of lru, .*ttl-SECONDS"),
        ("mode=both", 'mode takes .*"sync"'),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(text, problem):
    with pytest.raises(UsageError, match=problem):
        strategy_from([text])
