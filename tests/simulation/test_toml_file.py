"""Files of the user: one sentence for each mistake."""

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from springtide.core.errors import UsageError
from springtide.simulation.cluster import Cluster, cluster
from springtide.simulation.toml_file import load
from springtide.simulation.workload import Workload, preset

GOOD = {
    "name": "mine",
    "about": "a test",
    "system": 100,
    "task": {"type": "uniform", "start": 10, "stop": 20},
    "turns": {"type": "constant", "value": 3},
    "append": {"type": "constant", "value": 5},
    "output": {"type": "log_normal", "median": 10, "shape": 0.5, "low": 1},
    "latency": {
        "type": "mixture",
        "weights": [0.5, 0.5],
        "parts": [{"type": "constant", "value": 1}, {"type": "constant", "value": 2}],
    },
    "reset": {"type": "constant", "value": 0},
    "context": 2000,
}


def read(tmp_path, data, model=Workload):
    path = tmp_path / "mine.toml"
    path.write_text(data if isinstance(data, str) else tomli_w.dumps(data))
    return load(model, path)


def test_a_workload_and_a_cluster_are_read_as_the_package_s_own(tmp_path):
    assert read(tmp_path, GOOD).latency.weights == (0.5, 0.5)
    fields = preset("swe").model_dump(exclude_none=True)
    assert read(tmp_path, fields) == preset("swe")
    known = cluster("h100-7b")
    assert read(tmp_path, known.model_dump(exclude_none=True), Cluster) == known


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"context": None}, "context is missing: it takes a whole number of at least 1."),
        ({"context": "x"}, 'context = "x" is not allowed: it takes a whole number of at least 1.'),
        ({"context": 1.5}, "context = 1.5 is not allowed: it takes a whole number of at least 1."),
        ({"system": True}, "system = true is not allowed: it takes a whole number of at least 0."),
        ({"failure": 2.0}, "failure = 2.0 is not allowed: it takes a number of at least 0 and of at most 1."),
        ({"contxt": 5}, "There is no setting contxt; did you mean context?"),
        ({"turns": 3}, "turns = 3 is not allowed: it takes a section whose type is one of"),
        ({"turns": {"type": "unifrom"}}, 'turns.type = "unifrom" is not allowed: it takes one of'),
        ({"turns": {"value": 3}}, "turns = {value = 3} is not allowed: it takes a section whose type is one of"),
        ({"turns": {"type": "normal", "mean": 3}}, "turns.deviation is missing: it takes a number above 0."),
        ({"turns": {"type": "constant", "value": 3, "vlue": 2}}, "There is no setting turns.vlue; did you mean"),
        ({"turns": {"type": "constant", "value": float("nan")}}, "turns.value = nan is not allowed"),
        ({"turns": {"type": "constant", "value": 3, "low": 5, "high": 4}}, "turns: low = 5 is above high = 4."),
        ({"turns": {"type": "quantiles", "values": [2, 1]}}, "turns: `values` must not descend"),
        ({"latency": GOOD["latency"] | {"weights": [1.0]}}, "latency: `weights` must be one number"),
        (
            {"latency": GOOD["latency"] | {"parts": [{"type": "constant"}] * 2}},
            "latency.parts.0.value is missing",
        ),
        ({"system": 2000}, "context = 2000 has no room: system = 2000"),
    ],
)
def test_each_mistake_is_one_sentence_that_names_file_setting_value_and_remedy(tmp_path, change, sentence):
    data = {name: value for name, value in (GOOD | change).items() if value is not None}
    with pytest.raises(UsageError) as error:
        read(tmp_path, data)
    assert str(error.value).startswith(f"{tmp_path / 'mine.toml'}: {sentence}")


def test_several_mistakes_are_told_at_once(tmp_path):
    with pytest.raises(UsageError) as error:
        read(tmp_path, GOOD | {"system": -1, "context": -1})
    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize("text", ["= 3", "a = \x00", "x" * 2_000_000])
def test_what_is_no_toml_is_told(tmp_path, text):
    with pytest.raises(UsageError, match=r"mine\.toml: this "):
        read(tmp_path, text)


values = st.recursive(
    st.one_of(st.integers(), st.floats(), st.text(max_size=5), st.booleans(), st.dates()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["type", "value", "low", "x", "parts"]), inner)
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from([*GOOD, "window", "grade", "other"]), value=values)
def test_any_value_anywhere_is_taken_or_told(tmp_path, name, value):
    path = tmp_path / "mine.toml"
    path.write_text(tomli_w.dumps(GOOD | {name: value}))
    try:
        found = load(Workload, path)
    except UsageError:
        return
    script = found.script(seed=0, task=0, slot=0, attempt=1)
    assert all(turn.context + turn.output <= found.context for turn in script.turns)


def test_prompts_that_leave_no_room_are_cut_so_that_there_is_a_turn(tmp_path):
    work = read(tmp_path, GOOD | {"task": {"type": "constant", "value": 10_000}})
    script = work.script(seed=0, task=0, slot=0, attempt=1)
    assert [(turn.context, turn.output) for turn in script.turns] == [(1999, 1)]
