import re
import types
import typing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide import settings
from springtide.config import Recipe
from springtide.core.errors import UsageError
from springtide.environments.config import WordGameConfig
from springtide.recipe import anchored, annotated_recipe, builtin_recipes, dump_recipe, load_recipe, recipe_from

MINIMAL = {"environment": {"type": "word_game"}}


def complaint(*overrides, name="quickstart"):
    with pytest.raises(UsageError) as caught:
        load_recipe(name, overrides)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize("name", sorted(builtin_recipes()))
def test_every_built_in_recipe_is_valid_and_carries_its_own_name(name):
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.description


def test_an_override_is_toml_or_bare_text():
    recipe = load_recipe(
        "quickstart",
        ["training.optimizer.learning_rate=1e-5", "scheduling.mode=async", 'environment.families=["sum"]', "name=007"],
    )
    assert recipe.training.optimizer.learning_rate == 1e-5
    assert recipe.scheduling.mode == "async"
    assert recipe.environment.families == ("sum",)
    assert recipe.name == "007", "a text setting keeps the characters as written"


def test_an_override_may_leave_out_inner_sections_where_one_setting_only_fits():
    assert load_recipe("quickstart", ["training.learning_rate=1e-5"]).training.optimizer.learning_rate == 1e-5
    assert "Unknown setting warm_start.rate = 1" in complaint("warm_start.rate=1")


def test_another_type_starts_its_section_afresh_whatever_the_order():
    recipe = load_recipe("hf-gpu", ["environment.level=2", "environment.type=word_game"])
    assert recipe.environment == WordGameConfig(level=2)


def test_options_of_a_custom_environment_are_free():
    free = ["environment.options.size=3", "environment.options.type=maze"]
    recipe = load_recipe("word-game", [*free, "environment.path=my_env.py:Maze", "environment.type=custom"])
    assert recipe.environment.path == "my_env.py:Maze"
    assert recipe.environment.options == {"size": 3, "type": "maze"}


def test_the_same_type_keeps_its_section():
    assert load_recipe("hf-gpu", ["environment.type=shell"]).environment.levels == (1, 2, 3)


def test_a_partly_written_section_keeps_the_rest_of_its_own_default():
    default = Recipe.model_validate(MINIMAL).warm_start.optimizer
    recipe = recipe_from({**MINIMAL, "warm_start": {"optimizer": {"learning_rate": 0.5}}})
    assert recipe.warm_start.optimizer == default.model_copy(update={"learning_rate": 0.5})
    assert default.warmup_steps > 0


def test_none_is_how_toml_says_nothing():
    assert (
        load_recipe("quickstart", ["training.algorithm.importance_cap=none"]).training.algorithm.importance_cap is None
    )


def test_a_wrong_key_names_the_path_the_value_what_is_allowed_and_the_nearest_name():
    text = complaint("training.optimizer.lerning_rate=1e-5")
    assert text.count("\n") == 0
    for part in ("training.optimizer.lerning_rate = 1e-05", "weight_decay", "nearest valid name is", "learning_rate"):
        assert part in text


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("environment.familes", "environment.families"),
        ("trainning.threads", "training.threads"),
        ("training.optimiser.learning_rate", "training.optimizer.learning_rate"),
        ("scheduling.learning_rates", "training.optimizer.learning_rate"),
        ("rollout.max_turn", "rollout.max_turns"),
    ],
)
def test_the_nearest_name_is_found_wherever_it_lives(key, near):
    assert f"the nearest valid name is {near}." in complaint(f"{key}=1")


def test_nothing_is_proposed_where_nothing_is_near():
    assert "nearest" not in complaint("zzz=1")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("training.optimizer.learning_rate=0", "learning_rate = 0 is not allowed: it takes a number above 0."),
        ("training.optimizer.learning_rate=fast", '= "fast" is not allowed: it takes a number above 0.'),
        ("training.optimizer.learning_rate=inf", "= inf is not allowed: it takes a number above 0."),
        ("scheduling.steps=1.5", "scheduling.steps = 1.5 is not allowed: it takes a whole number of at least 0."),
        ("scheduling.steps=true", "scheduling.steps = true is not allowed: it takes a whole number"),
        ("training.optimizer.learning_rate=Infinity", 'learning_rate = "Infinity" is not allowed: it takes a number'),
        (
            'training.optimizer.learning_rate="1e-5"',
            'learning_rate = "1e-5" is not allowed: it takes a number above 0.',
        ),
        ("training.optimizer.learning_rate=1" + "0" * 400, "is not allowed: it takes a number above 0."),
        ('scheduling.steps="60"', 'scheduling.steps = "60" is not allowed: it takes a whole number of at least 0.'),
        ('scheduling.window="3"', "scheduling.window = \"3\" is not allowed: it takes a whole number or 'none'"),
        ("training.algorithm.importance_cap=nan", "importance_cap = nan is not allowed: it takes a number or 'none'"),
        ("evaluation.success_reward=-inf", "success_reward = -inf is not allowed: it takes a number."),
        ('training.optimizer.betas=["0.9", "0.95"]', 'betas = ["0.9", "0.95"] is not allowed: it takes a list of 2'),
        ("training.optimizer.betas=[0.9, true]", "betas = [0.9, true] is not allowed"),
        ("training.optimizer.betas=[0.9, nan]", "betas = [0.9, nan] is not allowed"),
        (
            "training.optimizer.betas=[0.9, 1.0]",
            "betas = [0.9, 1.0] is not allowed: it takes a list of 2, each a number of at least 0 and below 1.",
        ),
        ("training.optimizer.betas=[-0.1, 0.9]", "betas = [-0.1, 0.9] is not allowed"),
        ("scheduling.filter_zero_variance=1", "filter_zero_variance = 1 is not allowed: it takes true or false."),
        ("scheduling.filter_zero_variance=yes", 'zero_variance = "yes" is not allowed: it takes true or false.'),
        ("environment.levels=[1, 7]", "levels = [1, 7] is not allowed: it takes a list, each one of 1, 2, 3 with"),
        ("environment.levels=[true]", "levels = [true] is not allowed: it takes a list, each one of 1, 2, 3 with"),
        ("seed=9223372036854775808", "it takes a whole number of at least 0 and below 9223372036854775808."),
        ("scheduling.mode=asink", 'one of "sync", "async"; the nearest is "async".'),
        ("environment.type=shel", 'environment.type = "shel" is not allowed: it takes one of "shell"'),
        ("environment.families=[]", "environment.families = [] is not allowed: it takes a list"),
        ('environment.families=["sum", "x"]', 'families = ["sum", "x"] is not allowed'),
        ("training.optimizer.betas=[0.9]", "betas = [0.9] is not allowed: it takes a list of 2, each a number"),
        ("environment.type=custom", "environment.path is missing: it takes text"),
        ("model=7", 'model = 7 is not allowed: it takes a section whose type is one of "tiny", "pretrained".'),
        ("seed.deep=1", "seed = {deep = 1} is not allowed"),
        ("nonsense", "write it as section.setting=value"),
        ("=3", "write it as section.setting=value"),
    ],
)
def test_a_wrong_value_says_what_is_allowed(override, expected):
    text = complaint(override)
    assert expected in text
    assert text.count("\n") == 0


def test_every_mistake_gets_its_own_sentence():
    text = complaint("seed=-1", "scheduling.group_sise=4", "engine.max_batch=0", 'scheduling.steps="6"', "name=A")
    assert len(text.splitlines()) == 5


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["rollout.max_context=4096"], ("rollout.max_context = 4096", "model.max_context")),
        (["engine.capacity_tokens=64"], ("engine.capacity_tokens = 64", "rollout.max_context")),
        (["rollout.max_tokens_per_turn=1024"], ("rollout.max_tokens_per_turn = 1024", "rollout.max_context")),
        (["scheduling.group_size=1"], ("scheduling.group_size = 1", "at least 2")),
        (["scheduling.min_valid=9"], ("scheduling.min_valid = 9", "scheduling.group_size = 8")),
        (["scheduling.window=3"], ("scheduling.window = 3", "sync")),
        (["scheduling.retention=break-even"], ('scheduling.retention = "break-even"', 'scheduling.mode = "async"')),
        (["scheduling.priority=value"], ('scheduling.priority = "value"', 'scheduling.mode = "async"')),
        (["scheduling.admission=law"], ('scheduling.admission = "law"', 'scheduling.mode = "async"')),
        (
            ["scheduling.mode=async", "scheduling.retention=lfu"],
            ("scheduling.retention", "residency-SHARE, break-even ("),
        ),
        (["scheduling.mode=async", "scheduling.retention=oracle"], ("scheduling.retention", "only a simulation")),
        (
            ["scheduling.mode=async", "scheduling.staleness=2", "engine.kv_gap=3"],
            ("engine.kv_gap = 3", "scheduling.staleness = 2"),
        ),
        (["scheduling.mode=async", "scheduling.window=17"], ("scheduling.window = 17", "groups_per_step = 16")),
        (["training.algorithm.mini_batches=17"], ("mini_batches = 17", "groups_per_step = 16")),
        (["rollout.temperature=0"], ("rollout.temperature = 0", "scheduling.steps is 0")),
        (["model.heads=3"], ("model.hidden = 128", "model.heads = 3")),
        (["model.kv_heads=3"], ("model.heads = 8", "model.kv_heads = 3")),
    ],
)
def test_settings_must_fit_together(overrides, named):
    text = complaint(*overrides)
    for part in named:
        assert part in text


def test_what_does_not_apply_is_not_checked():
    assert load_recipe("quickstart", ["rollout.temperature=0", "scheduling.steps=0"]).rollout.temperature == 0
    assert load_recipe("quickstart", ["scheduling.mode=async", "scheduling.window=3"]).scheduling.window == 3


def test_an_unknown_recipe_lists_the_names_and_the_nearest():
    with pytest.raises(UsageError, match=r"no recipe 'quikstart'.*did you mean quickstart\?"):
        load_recipe("quikstart")


def test_a_recipe_file_that_is_not_toml_names_the_place(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("seed = = 1")
    with pytest.raises(UsageError, match=r"mine\.toml: this is not valid TOML: .*line 1"):
        load_recipe(path)


def test_a_file_loads_like_a_built_in_and_a_folder_means_its_recipe(tmp_path):
    (tmp_path / "recipe.toml").write_text(builtin_recipes()["word-game"])
    assert load_recipe(tmp_path / "recipe.toml") == load_recipe("word-game") == load_recipe(tmp_path)


def values(field):
    """Values that a plain field takes, without the cross-field checks."""
    if section := settings.section_models(field):
        return st.one_of(*[sections(model) for model in section])
    annotation = field.annotation
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    bounds = {key: getattr(item, key) for item in field.metadata for key in ("ge", "gt", "le") if hasattr(item, key)}
    low = bounds.get("ge", bounds.get("gt"))
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin in (types.UnionType, typing.Union):
        return st.none() | numbers(arguments[0], low, bounds.get("le"))
    if annotation in (int, float):
        return numbers(annotation, low, bounds.get("le"))
    if annotation is bool:
        return st.booleans()
    if annotation is str and any(hasattr(item, "pattern") for item in field.metadata):
        return st.from_regex(r"[a-z0-9][a-z0-9_-]{0,8}", fullmatch=True)
    if annotation is str:
        return st.text(st.characters(codec="utf-8"), max_size=12)
    if origin is tuple and typing.get_origin(arguments[0]) is typing.Literal:
        return st.lists(st.sampled_from(typing.get_args(arguments[0])), min_size=1, max_size=3)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*[numbers(float, 0, 0.999) for _ in arguments])
    if origin is tuple and arguments[0] is str:
        return st.lists(st.sampled_from(["/opt/tools", "/srv/ü", "/home"]), max_size=3)  # folders to show in a box
    return st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=5),
        st.integers(-(2**40), 2**40) | st.booleans() | st.text(st.characters(codec="utf-8"), max_size=5),
        max_size=3,
    )


def numbers(kind, low, high):
    if kind is int:
        return st.integers(0 if low is None else low, high if high is not None else 10**6)
    bottom = 1e-9 if low is None else low + 1e-9
    return st.floats(bottom, high if high is not None else 1e6, allow_nan=False, allow_infinity=False)


CROSS_CHECKED = {"heads", "kv_heads", "hidden", "max_context", "max_tokens_per_turn", "capacity_tokens", "group_size"}
CROSS_CHECKED |= {"min_valid", "window", "mini_batches", "temperature", "retention", "admission", "kv_gap", "priority"}


def sections(model):
    """Tables of `model`: every setting there or left out, save those that must fit another."""
    required = {name: values(field) for name, field in model.model_fields.items() if field.is_required()}
    if "type" in model.model_fields:
        required["type"] = values(model.model_fields["type"])
    optional = {
        name: values(field)
        for name, field in model.model_fields.items()
        if name not in required and name not in CROSS_CHECKED
    }
    return st.fixed_dictionaries(required, optional=optional)


@given(sections(Recipe))
def test_a_dumped_recipe_reloads_to_an_equal_one(tmp_path_factory, data):
    recipe = Recipe.model_validate(data)
    path = tmp_path_factory.mktemp("recipes") / "recipe.toml"
    path.write_text(dump_recipe(recipe), encoding="utf-8")
    assert load_recipe(path) == recipe


def test_the_annotated_recipe_is_the_recipe(tmp_path):
    recipe = load_recipe("hf-gpu", ["scheduling.window=none", "training.learning_rate=3e-6"])
    path = tmp_path / "annotated.toml"
    path.write_text(annotated_recipe(recipe))
    assert load_recipe(path) == recipe
    assert "# Train steps in the run. (a whole number of at least 0)" in path.read_text()


def test_a_runs_recipe_names_files_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    overrides = [
        "environment.type=custom",
        "environment.path=my_env.py:Maze",
        "model.type=pretrained",
        "model.path=qwen",
    ]
    recipe = anchored(load_recipe("word-game", overrides))
    assert recipe.environment.path == f"{tmp_path}/my_env.py:Maze"
    assert recipe.model.path == f"{tmp_path}/qwen"
    module = load_recipe("word-game", ["environment.type=custom", "environment.path=mazes.deep:Maze"])
    assert anchored(module) == module


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("trainin.x=1", "the nearest valid name is training."),
        ("model.path=/models/x", "model.path goes with another model.type."),
    ],
)
def test_a_wrong_section_or_a_setting_of_another_type_is_explained(override, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        load_recipe("word-game", [override])


DOCS = Path(__file__).parents[1] / "docs"


def test_the_smallest_recipe_of_the_documentation_can_learn(tmp_path):
    """Random weights, so it needs a warm start, and a larger step than a pretrained model."""
    (tmp_path / "mine.toml").write_text((DOCS / "configuration.md").read_text().split("```toml\n")[1].split("```")[0])
    recipe = load_recipe(tmp_path / "mine.toml")
    assert recipe.model.type == "tiny"
    assert recipe.warm_start.steps > 0
    assert recipe.training.optimizer.learning_rate >= 1e-4


def test_the_documented_model_is_one_and_the_same():
    named = load_recipe("hf-gpu").model.path.removeprefix("models/")
    assert f"hf download Qwen/{named} " in (DOCS / "hugging-face.md").read_text()
    assert f"model.path=/models/{named}\n" in (DOCS / "configuration.md").read_text()
