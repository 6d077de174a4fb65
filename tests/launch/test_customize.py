"""What is put around the parts of a run is what the run uses."""

import msgspec

from launch.runs import new_run, same, weights
from springtide.core.sampling import Sampled, SampleRequest
from springtide.launch.customize import Customize
from springtide.launch.train import train
from springtide.telemetry.jsonl import read_metrics, series


class Delegate:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


class Counted(Delegate):
    """Counts the tasks that a source gives out, and the weights that an engine takes."""

    def __init__(self, inner):
        super().__init__(inner)
        self.tasks = self.loads = 0

    def task(self, **arguments):
        self.tasks += 1
        return self.inner.task(**arguments)

    def load_weights(self, **arguments):
        self.loads += 1
        return self.inner.load_weights(**arguments)


class Short(Delegate):
    """A sampler that lets no turn be longer than one token."""

    async def sample(self, request: SampleRequest) -> Sampled:
        params = msgspec.structs.replace(request.params, max_tokens=1)
        return await self.inner.sample(msgspec.structs.replace(request, params=params))


def test_a_run_goes_through_what_is_put_around_its_parts(tmp_path):
    recipe, folder = new_run(tmp_path)
    made = []

    def counted(inner):
        made.append(Counted(inner))
        return made[-1]

    train(recipe=recipe, folder=folder, customize=Customize(source=counted, engine=counted, sampler=Short))
    source, engine = made
    assert source.tasks >= 3 * 2 + 4, "two groups in each of three steps, and the held-out tasks"
    assert engine.loads >= 3
    longest = series(read_metrics(folder.metrics), "completion/length_max")
    assert [value for _, value in longest] == [1.0, 1.0, 1.0]


def test_a_stage_that_is_wrapped_changes_what_is_learned(tmp_path):
    def silent(trainer):
        trainer.stages = trainer.stages.wrap("step", lambda stage: lambda: (trainer.model.zero_grad(), stage())[1])

    recipe, folder = new_run(tmp_path)
    train(recipe=recipe, folder=folder, customize=Customize(trainer=silent))
    assert same(weights(folder, 3), weights(folder, 0))
    records = list(read_metrics(folder.metrics))
    assert {value for _, value in series(records, "train/weights_changed")} == {0.0}
