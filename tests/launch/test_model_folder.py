"""What a run keeps of its model is enough to go on as it began."""

import json

from launch.runs import new_run
from springtide.launch.export import export_run
from springtide.launch.model_folder import open_tokenizer, prepare_model_folder
from springtide.launch.train import sft
from springtide.policy.config import PretrainedModelConfig
from springtide.policy.tokenizer import load_tokenizer


def test_turns_go_on_ending_at_the_tokens_that_the_models_generation_config_names(tmp_path):
    recipe, tiny = new_run(tmp_path, "warm_start.steps=1")
    sft(recipe=recipe, folder=tiny)
    model = tmp_path / "model"
    export_run(tiny, model)
    stops = json.loads((model / "generation_config.json").read_text())["eos_token_id"]
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, *stops]}))
    recipe, _ = new_run(tmp_path, "model.type=pretrained", f"model.path={model}")
    own = tmp_path / "own"
    prepare_model_folder(own, recipe, lambda index: None, [])
    assert open_tokenizer(own).stop_tokens == load_tokenizer(PretrainedModelConfig(path=str(model))).stop_tokens
    assert open_tokenizer(own).stop_tokens[0] == 7
