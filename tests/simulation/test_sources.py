"""What a user names is found, whatever it is."""

import pytest
import tomli_w

from simulation.test_toml_file import GOOD
from simulation.traces import samples
from simulation.traces.test_run import episode, folder
from springtide.core.errors import UsageError
from springtide.simulation.cluster import cluster
from springtide.simulation.sources import find_cluster, find_trace, find_work, require_room
from springtide.simulation.workload import preset


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_presets_come_first_and_take_other_sizes(tmp_path):
    (tmp_path / "tau").write_text("not looked at")
    assert find_work("tau").work == preset("tau")
    changed = find_work("tau", groups_per_step=3, group_size=2, context=9000).work
    assert (changed.groups_per_step, changed.group_size, changed.longest) == (3, 2, 9000)
    with pytest.raises(UsageError, match="'tau' begins with 3000 tokens; give a larger --context than 3000"):
        find_work("tau", context=3000)


@pytest.mark.parametrize("name", samples.ALL)
def test_every_format_is_known_by_its_content(tmp_path, name):
    (tmp_path / "named-like-nothing").write_text(samples.ALL[name])
    work, told = find_work("named-like-nothing", group_size=2)
    assert work.group_size == 2
    assert told


def test_a_workload_is_a_toml_file_by_name_or_by_content(tmp_path):
    for name in ("mine.toml", "mine"):
        (tmp_path / name).write_text(tomli_w.dumps(GOOD))
        assert find_work(name).work.name == "mine"
    with pytest.raises(UsageError, match="'mine' was not recorded; name a run's folder"):
        find_trace("mine")


def test_a_run_is_found_by_folder_and_by_id(tmp_path):
    folder(tmp_path / "runs", episode(0, 0), episode(0, 1))
    for name in ("mine", "runs/mine", str(tmp_path / "runs" / "mine")):
        found = find_work(name)
        assert (found.work.name, found.work.group_size) == ("mine", 2)


def test_a_folder_of_stage_timings_is_a_trace_and_others_are_none(tmp_path):
    (tmp_path / "runs-of-agent" / "task").mkdir(parents=True)
    with pytest.raises(UsageError, match="has neither run"):
        find_work("runs-of-agent")
    (tmp_path / "runs-of-agent" / "task" / "stage_timings.jsonl").write_text(samples.STAGE_TIMINGS)
    assert len(find_trace("runs-of-agent").slots) == 2


def test_clusters_are_found_by_name_and_by_file(tmp_path):
    fields = cluster("h100-7b").model_dump(exclude_none=True)
    (tmp_path / "mine.toml").write_text(tomli_w.dumps(fields | {"ranks": 3}))
    assert find_cluster("mine.toml").ranks == 3
    assert find_cluster("h100-7b") == cluster("h100-7b")
    with pytest.raises(UsageError, match="There is no cluster 'other"):
        find_cluster("other.toml")


def test_turns_that_no_rank_can_hold_are_refused():
    small = cluster("h100-7b").model_copy(update={"kv_tokens": 1000})
    with pytest.raises(UsageError, match="'tau' has turns of up to 32768 tokens, and a rank of 'h100-7b' holds 1000"):
        require_room(preset("tau"), small)
