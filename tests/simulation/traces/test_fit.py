"""A workload that is fitted to a trace: what is found again, and how near it comes to the trace itself."""

import random
from statistics import fmean

import pytest

from springtide.simulation.cluster import cluster
from springtide.simulation.distribution import Constant, Geometric, LogNormal, Quantiles, Uniform, mean
from springtide.simulation.strategy import Strategy
from springtide.simulation.summary import summarise
from springtide.simulation.toml_file import load
from springtide.simulation.traces.fit import between, fit, fitted_to, quantiles
from springtide.simulation.traces.recorded import recorded
from springtide.simulation.traces.trace import Episode, Trace
from springtide.simulation.traces.written import text_of
from springtide.simulation.workload import Workload, preset

TOLERANCE = 0.15
"""Between the goodput of a trace and that of the workload fitted to it."""


def draws(distribution, count=3000):
    source = random.Random(0)
    return [distribution.quantile(source.random()) for _ in range(count)]


@pytest.mark.parametrize(
    "truth",
    [
        LogNormal(type="log_normal", median=120, shape=0.7, low=1),
        Uniform(type="uniform", start=3, stop=9),
        Geometric(type="geometric", start=2, mean=6),
        Constant(type="constant", value=0.5),
    ],
    ids=lambda truth: truth.type,
)
def test_known_families_are_found_again(truth):
    found, comment = fitted_to(draws(truth))
    assert type(found) is type(truth)
    assert mean(found) == pytest.approx(mean(truth), rel=0.06)
    assert comment.startswith(("fitted: Kolmogorov distance 0.0", "measured: always the same"))


def test_what_no_family_describes_keeps_its_quantiles_and_its_mean():
    source = random.Random(1)
    values = [0.0] * 700 + [source.lognormvariate(1, 1.5) for _ in range(300)]
    found, comment = fitted_to(values)
    assert isinstance(found, Quantiles)
    assert found.quantile(0.5) == 0.0
    assert mean(found) == pytest.approx(fmean(values), rel=0.05)
    assert "no family was close" in comment


def test_the_mean_of_a_heavy_tail_is_kept_and_not_its_end():
    values = sorted([1.0] * 999 + [1000.0])
    assert mean(quantiles(values)) == pytest.approx(fmean(values), rel=0.05)


def test_the_share_between_groups_is_nothing_for_noise_and_all_for_constant_groups():
    source = random.Random(2)
    noise = [[source.gauss() for _ in range(8)] for _ in range(200)]
    assert between(noise) < 0.05
    assert between([[float(n)] * 4 for n in range(50)]) == pytest.approx(1.0)
    effects = [0.6**0.5 * source.gauss() for _ in range(300)]
    mixed = [[effect + 0.4**0.5 * source.gauss() for _ in range(8)] for effect in effects]
    assert between(mixed) == pytest.approx(0.6, abs=0.06)


def recording(name, groups=48):
    """As a run of this workload would have been recorded."""
    work = preset(name)
    slots = []
    for task in range(groups):
        for slot in range(work.group_size):
            attempts = []
            for attempt in (1, 2, 3):
                script = work.script(seed=5, task=task, slot=slot, attempt=attempt)
                common = script.prefix if slot or attempt > 1 else script.shared
                attempts.append(
                    Episode(script.turns, script.trained, common, script.reset, script.grade, 1.0, script.failed)
                )
                if not script.failed:
                    break
            slots.append(tuple(attempts))
    sizes = (work.group_size,) * groups
    return Trace(name=name, format="test", slots=tuple(slots), sizes=sizes, assumptions=("One.",), groups_per_step=16)


@pytest.mark.parametrize("name", ["tau", "shop", "search"])
def test_the_fitted_workload_comes_to_the_goodput_of_the_trace(name, tmp_path):
    work, told = recorded(recording(name))
    path = tmp_path / "fitted.toml"
    path.write_text(text_of(fit(work, told)))
    fitted = load(Workload, path)
    goodputs = [
        summarise(each, cluster("h100-7b"), Strategy(), seeds=[0, 1, 2], steps=4, warm_steps=1)[0].goodput_tokens_per_s
        for each in (work, fitted)
    ]
    assert goodputs[1] == pytest.approx(goodputs[0], rel=TOLERANCE)


def test_the_file_says_where_each_number_is_from_and_reads_back_the_same(tmp_path):
    work, told = recorded(recording("tau", groups=12))
    found = fit(work, told)
    path = tmp_path / "fitted.toml"
    path.write_text(text_of(found))
    assert load(Workload, path) == found.workload
    lines = path.read_text().splitlines()
    assert "# One." in lines
    numbers = [line for line in lines if not line.startswith(("#", "name", "about", "latency_factor"))]
    assert len(numbers) == 16
    assert all("  # " in line for line in numbers)
    truth = preset("tau")
    assert found.workload.system == truth.system
    assert found.workload.turns_shared == pytest.approx(truth.turns_shared, abs=0.2)
    assert found.workload.failure == pytest.approx(truth.failure, abs=0.02)
    assert (found.workload.group_size, found.workload.groups_per_step) == (8, 16)


def test_a_trace_of_single_turns_without_groups_is_fitted_too(tmp_path):
    slots = tuple((Episode(preset("tau").script(seed=0, task=n, slot=0, attempt=1).turns[:1], (9,)),) for n in range(9))
    work, told = recorded(Trace(name='a "name"\n', format="f", slots=slots))
    path = tmp_path / "fitted.toml"
    path.write_text(text_of(fit(work, told)))
    fitted = load(Workload, path)
    assert fitted.name == 'a "name"\n, fitted'
    assert (fitted.turns.value, fitted.turns_shared) == (1.0, 0.0)
