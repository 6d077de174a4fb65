"""Runs of versions against one number per token."""

from hypothesis import given
from hypothesis import strategies as st

from springtide.core.kv_versions import KvVersions

STEPS = st.lists(st.tuples(st.sampled_from(["extend", "truncate", "renew"]), st.integers(0, 12)), max_size=30)


@given(steps=STEPS)
def test_runs_say_what_one_version_per_token_says(steps):
    runs, tokens = KvVersions(), []
    for version, (kind, amount) in enumerate(steps):
        if kind == "extend":
            runs.extend(amount, version)
            tokens += [version] * amount
        elif kind == "truncate":
            runs.truncate(amount)
            tokens = tokens[:amount]
        else:
            amount = min(amount, len(tokens))
            runs.renew(amount, version)
            tokens[:amount] = [version] * amount
        leading = next((place for place, each in enumerate(tokens) if each != tokens[0]), len(tokens))
        assert runs.tokens == len(tokens)
        assert runs.oldest == min(tokens, default=-1)
        assert runs.gap(99) == (99 - min(tokens) if tokens else 0)
        for each in range(version + 1):
            assert runs.leading(each) == (leading if tokens and tokens[0] == each else 0)
