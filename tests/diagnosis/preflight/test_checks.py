"""What preflight says of configurations that are wrong, and of ones that are right."""

from pathlib import Path

import pytest

from springtide.diagnosis.preflight.base import Base, TaskRate, base_of_rate
from springtide.diagnosis.preflight.document import Document, flat
from springtide.diagnosis.preflight.plan import plan_of
from springtide.diagnosis.preflight.preflight import preflight
from springtide.diagnosis.preflight.shape import from_folder, from_name, from_table, of_size
from springtide.diagnosis.preflight.truncation import of_quantiles
from springtide.diagnosis.verdict import Verdict
from springtide.recipe import builtin_recipes, load_recipe

TRL = {
    "num_generations": 8,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 32,
    "max_completion_length": 1024,
    "learning_rate": 1e-6,
    "eval_strategy": "steps",
    "log_completions": True,
    "max_steps": 200,
    "save_steps": 10,
}
VERL = {
    "algorithm.adv_estimator": "grpo",
    "data.train_batch_size": 256,
    "data.max_prompt_length": 512,
    "data.max_response_length": 1024,
    "actor_rollout_ref.rollout.n": 8,
    "actor_rollout_ref.rollout.calculate_log_probs": True,
    "actor_rollout_ref.rollout.val_kwargs.temperature": 1.0,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 64,
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
    "trainer.rollout_data_dir": "rollouts",
    "trainer.test_freq": 10,
    "trainer.save_freq": 20,
}


def checked(values, *, gpus=None, **more):
    return preflight(plan_of(Document(source="config", values=dict(values)), gpus=gpus), **more)


def only(report, verdict=Verdict.SICK):
    return [(each.id, each.field) for each in report.findings if each.verdict is verdict]


@pytest.mark.parametrize("values", [TRL, VERL])
def test_a_sound_configuration_is_let_pass(values):
    report = checked(values, base=base_of_rate("0.4:0.2"), truncation=of_quantiles("200:600", 1024))
    assert [each for each in report.findings if each.verdict is not Verdict.OK] == []
    assert report.verdict is Verdict.OK
    assert set(report.not_checked) == {"memory"}


@pytest.mark.parametrize("name", list(builtin_recipes()))
def test_our_own_recipes_are_not_sick(name):
    plan = plan_of(Document(source=name, values=flat(load_recipe(name).model_dump())))
    assert preflight(plan, base=base_of_rate("0.4:0.2")).verdict is not Verdict.SICK


@pytest.mark.parametrize(
    ("change", "gpus", "symptom", "field"),
    [
        ({"num_generations": 6}, 1, "S61", "num_generations"),
        ({"generation_batch_size": 60}, 1, "S61", "num_generations"),
        ({"generation_batch_size": 64, "steps_per_generation": 8}, 1, "S61", "generation_batch_size"),
        ({"num_generations": 1}, 1, "S10", "num_generations"),
        ({"temperature": 0.0}, 1, "S10", "temperature"),
        ({"lora_r": 16, "learning_rate": 5e-7}, 1, "S61", "learning_rate"),
        ({"warmup_steps": 200}, 1, "S32", "warmup_steps"),
        ({"sync_ref_model": True}, 1, "S61", "sync_ref_model"),
        ({"vllm_max_model_length": 1000}, 1, "S61", "vllm_max_model_length"),
        ({"reward_weights": [1.0], "reward_funcs": 2}, 1, "S61", "reward_weights"),
        ({"reward_weights": [0.0, 0.0]}, 1, "S12", "reward_weights"),
    ],
)
def test_contradictions_of_trl(change, gpus, symptom, field):
    assert only(checked(TRL | change, gpus=gpus)) == [(symptom, field)]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"actor_rollout_ref.actor.ppo_mini_batch_size": 512}, "actor_rollout_ref.actor.ppo_mini_batch_size"),
        ({"data.train_batch_size": 250, "actor_rollout_ref.rollout.n": 5}, "data.train_batch_size"),
        (
            {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 48},
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        ),
        ({"actor_rollout_ref.rollout.max_model_len": 1024}, "actor_rollout_ref.rollout.max_model_len"),
        (
            {
                "actor_rollout_ref.actor.use_dynamic_bsz": True,
                "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 1024,
            },
            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
        ),
        ({"actor_rollout_ref.rollout.n": 1}, "actor_rollout_ref.rollout.n"),
    ],
)
def test_contradictions_of_verl(change, field):
    assert field in [found for _, found in only(checked(VERL | change))]


def test_ppo_needs_no_groups():
    values = VERL | {"algorithm.adv_estimator": "gae", "actor_rollout_ref.rollout.n": 1}
    assert only(checked(values | {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 8})) == []


def test_the_remedy_mends_it():
    report = checked(TRL | {"num_generations": 6, "gradient_accumulation_steps": 4}, gpus=2)
    assert report.findings[0].remedy == "gradient_accumulation_steps = 3"
    assert only(checked(TRL | {"num_generations": 6, "gradient_accumulation_steps": 3}, gpus=2)) == []


def test_a_mask_with_a_short_limit_leaves_nothing():
    short = of_quantiles("1500:4000", 1024)
    report = checked(TRL | {"mask_truncated_completions": True}, truncation=short)
    assert ("S10", "mask_truncated_completions") in only(report)
    assert ("S61", "max_completion_length") in only(report)
    longer = checked(
        TRL | {"mask_truncated_completions": True, "max_completion_length": 8192},
        truncation=of_quantiles("1500:4000", 8192),
    )
    assert only(longer) == []


def test_tasks_that_are_too_hard_or_too_easy():
    hard = checked(TRL, base=base_of_rate("0.001")).findings[0]
    assert (hard.id, hard.verdict) == ("S01", Verdict.SICK)
    easy = checked(TRL, base=base_of_rate("0.98")).findings[0]
    assert (easy.id, easy.verdict) == ("S08", Verdict.SICK)
    assert "above .9" in easy.remedy
    some = checked(TRL, base=base_of_rate("0.05")).findings[0]
    assert (some.id, some.verdict) == ("S09", Verdict.WATCH)
    assert "num_generations = 16" in some.remedy


def test_groups_that_are_filtered_cost_and_are_no_fault():
    values = VERL | {"algorithm.filter_groups.enable": True}
    assert checked(values, base=base_of_rate("0.005")).verdict is Verdict.WATCH


def test_a_base_model_without_variety_is_named():
    same = Base(tasks=tuple(TaskRate(float(index % 2), 8) for index in range(40)))
    varied = Base(tasks=tuple(TaskRate(0.5, 8) for _ in range(40)))
    assert ("S22", "temperature") in only(checked(TRL, base=same), Verdict.WATCH)
    assert ("S22", "temperature") not in only(checked(TRL, base=varied), Verdict.WATCH)


def test_parts_of_the_reward_that_are_dead_or_drown_the_others():
    base = Base(components={"format": (0.0,) * 20, "right": (0.0, 1.0) * 10, "judge": (0.0, 10.0) * 10})
    found = {each.field: each.id for each in checked(TRL, base=base).findings}
    assert found["reward component format"] == "S12"
    assert found["reward component judge"] == "S18"
    assert "reward component right" not in found


def test_clip_higher_with_one_update_does_nothing():
    assert only(checked(TRL | {"epsilon_high": 0.28}), Verdict.WATCH) == [("S25", "epsilon_high")]
    assert only(checked(TRL | {"epsilon_high": 0.28, "num_iterations": 2}), Verdict.WATCH) == []


def test_what_will_not_be_seen_is_named():
    blind = checked({"num_generations": 8, "gradient_accumulation_steps": 32, "save_strategy": "no"})
    assert [each.field for each in blind.findings if each.verdict is Verdict.WATCH] == [
        "eval_strategy",
        "log_completions",
        "save_strategy",
    ]


@pytest.mark.parametrize(
    ("name", "size"),
    [("Qwen/Qwen2.5-7B-Instruct", 7.62e9), ("meta-llama/Llama-3.1-8B", 8.03e9), ("Qwen/Qwen3-0.6B", 0.6e9)],
)
def test_shapes_have_the_sizes_that_are_published(name, size):
    assert from_table(name).parameters == pytest.approx(size, rel=0.01)


def test_names_that_are_not_common_give_a_size():
    assert from_table("mine/Llama-9-12B") is None
    assert from_name("mine/Llama-9-12.5B-it").parameters == 12.5e9
    assert from_name("mine/small-350m").parameters == 350e6
    assert from_name("mine/mixtral-8x7B") is None
    assert from_name("mine/nothing") is None


def test_a_models_folder_gives_its_shape(tmp_path):
    (tmp_path / "config.json").write_text(
        '{"num_hidden_layers": 24, "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2,'
        ' "intermediate_size": 4864, "vocab_size": 151936, "tie_word_embeddings": true}'
    )
    assert from_folder(tmp_path).parameters == pytest.approx(0.494e9, rel=0.01)
    assert from_folder(Path("/nowhere")) is None


def test_memory_adds_up_and_is_called_an_estimate():
    report = checked(TRL | {"model_name_or_path": "Qwen/Qwen2.5-7B", "bf16": True, "beta": 0.04})
    parts = {part.name: part.gib for part in report.memory.parts}
    gib = 2**30
    assert report.memory.estimate
    assert parts["weights"] == pytest.approx(2 * 7.62e9 / gib, rel=0.01)
    assert parts["weights"] + parts["gradients"] + parts["Adam"] == pytest.approx(16 * 7.62e9 / gib, rel=0.01)
    assert parts["reference weights"] == parts["weights"]
    assert report.memory.total_gib == pytest.approx(sum(parts.values()))


def test_adapters_take_no_optimizer_for_all_weights():
    values = TRL | {"model_name_or_path": "Qwen/Qwen2.5-7B", "lora_r": 16, "learning_rate": 1e-5}
    assert checked(values).memory.certain_gib < 16


def test_weights_that_cannot_fit_are_sick_and_long_sequences_watched():
    values = TRL | {"model_name_or_path": "Qwen/Qwen2.5-7B"}
    assert only(checked(values, device_gib=80)) == [("S58", "model_name_or_path")]
    small = checked(
        values | {"per_device_train_batch_size": 64, "gradient_accumulation_steps": 4},
        shape=from_table("Qwen2.5-0.5B"),
        device_gib=80,
    )
    assert only(small) == []
    assert ("S58", "per_device_train_batch_size") in only(small, Verdict.WATCH)


def test_a_size_alone_leaves_activations_out():
    memory = checked(TRL, shape=of_size(7e9)).memory
    assert [part.name for part in memory.parts] == ["weights", "gradients", "Adam"]
    assert "folder" in memory.left_out[0]
