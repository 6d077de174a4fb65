import json

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, Gemma3ForCausalLM, Gemma3TextConfig, Qwen3ForCausalLM

from springtide.core.errors import UsageError
from springtide.policy.config import PretrainedModelConfig, TinyModelConfig
from springtide.policy.device import CPU
from springtide.policy.digest import digest_tensors, named_weights
from springtide.policy.model import build_tiny, export, load_pretrained, served_copy
from springtide.policy.tokenizer import fit_tokenizer, load_tokenizer

SMALL = TinyModelConfig(layers=2, hidden=32, heads=2, kv_heads=1, intermediate=48, max_context=64)
TEXTS = ["cat notes.txt", "the sum is 42", "grep error log.txt"] * 5


@pytest.fixture(scope="module")
def tokenizer():
    return fit_tokenizer(TEXTS, vocabulary=320)


@pytest.fixture
def exported(tokenizer, tmp_path):
    model = build_tiny(SMALL, vocabulary_size=tokenizer.vocabulary_size, seed=3)
    export(model, tokenizer, tmp_path)
    return model, tmp_path


def digest(model):
    return digest_tensors(named_weights(model))


def test_weights_are_a_function_of_the_seed_and_leave_the_global_stream_alone():
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    one = build_tiny(SMALL, vocabulary_size=64, seed=3)
    assert torch.rand(1) == expected
    assert digest(one) == digest(build_tiny(SMALL, vocabulary_size=64, seed=3))
    assert digest(one) != digest(build_tiny(SMALL, vocabulary_size=64, seed=4))
    assert {parameter.dtype for parameter in one.parameters()} == {torch.float32}
    assert one.get_input_embeddings().weight is one.get_output_embeddings().weight


@pytest.mark.parametrize(
    ("shape", "field"), [({"hidden": 50, "heads": 4}, "model.hidden"), ({"heads": 4, "kv_heads": 3}, "model.kv_heads")]
)
def test_a_shape_that_does_not_divide_is_named(shape, field):
    with pytest.raises(UsageError, match=field):
        build_tiny(TinyModelConfig(**shape), vocabulary_size=64, seed=0)


def test_an_export_loads_in_transformers_with_equal_logits_and_chat_template(exported, tokenizer):
    model, folder = exported
    theirs = AutoModelForCausalLM.from_pretrained(folder)
    their_tokenizer = AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "sum 42"}]
    text = their_tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == tokenizer.apply_template(chat, tools=[], generation_prompt=True)
    ids = their_tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
    assert ids[0].tolist() == tokenizer.encode(text, special=True)
    with torch.no_grad():
        torch.testing.assert_close(theirs(input_ids=ids).logits, model(input_ids=ids).logits)
    assert theirs.generation_config.eos_token_id == list(tokenizer.stop_tokens)


def test_an_export_loads_here_too(exported, tokenizer):
    model, folder = exported
    config = PretrainedModelConfig(path=str(folder))
    assert digest(load_pretrained(config, CPU)) == digest(model)
    loaded = load_tokenizer(config)
    assert loaded.stop_tokens == tokenizer.stop_tokens
    assert loaded.encode("sum 42", special=False) == tokenizer.encode("sum 42", special=False)


def test_gradient_checkpointing_changes_no_gradient(exported):
    _, folder = exported
    gradients = []
    for checkpointing in (False, True):
        model = load_pretrained(PretrainedModelConfig(path=str(folder), gradient_checkpointing=checkpointing), CPU)
        model(input_ids=torch.arange(12)[None], use_cache=False).logits.square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1])


def gemma():
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 16, "vocab_size": 64}
    return Gemma3ForCausalLM(Gemma3TextConfig(**shape, num_attention_heads=2, num_key_value_heads=1))


@pytest.mark.parametrize("build", [lambda: build_tiny(SMALL, vocabulary_size=64, seed=3), gemma])
def test_what_is_served_in_bfloat16_keeps_the_precision_of_all_that_is_no_weight(build):
    model = build()
    weights, buffers = dict(named_weights(model)), dict(model.named_buffers())
    served = served_copy(model, torch.bfloat16)
    for name, weight in named_weights(served):
        assert torch.equal(weight, weights[name].bfloat16())
    kept = {name: buffer for name, buffer in served.named_buffers() if name not in weights}
    assert any("inv_freq" in name for name in kept)
    assert kept.keys() == buffers.keys() - weights.keys()
    for name, buffer in kept.items():
        assert buffer.dtype is buffers[name].dtype
        assert torch.equal(buffer, buffers[name])
        assert buffer.data_ptr() != buffers[name].data_ptr(), "a copy of its own"
    assert digest(model) == digest(served_copy(model, torch.float32))


def test_a_model_that_cannot_checkpoint_its_activations_is_one_sentence(exported, monkeypatch):
    _, folder = exported
    monkeypatch.setattr(Qwen3ForCausalLM, "supports_gradient_checkpointing", False)
    with pytest.raises(UsageError, match=r"model\.gradient_checkpointing is true, but the Qwen3ForCausalLM"):
        load_pretrained(PretrainedModelConfig(path=str(folder), gradient_checkpointing=True), CPU)


def break_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: folder.rename(folder.with_name("elsewhere")), "is not a folder"),
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "cannot read"),
        (lambda folder: (folder / "model.safetensors").unlink(), r"no \*.safetensors"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"1234"), "cannot be loaded"),
        (lambda folder: break_config(folder, model_type="vit"), "no causal language model"),
        (lambda folder: break_config(folder, model_type="nonsense"), "cannot read"),
    ],
)
def test_an_unusable_model_folder_is_one_sentence(exported, harm, said):
    _, folder = exported
    harm(folder)
    with pytest.raises(UsageError, match=said) as caught:
        load_pretrained(PretrainedModelConfig(path=str(folder)), CPU)
    message = str(caught.value)
    assert message.startswith(f"model.path '{folder}'")
    assert message.endswith(".")
    assert "\n" not in message


def without_template(folder):
    (folder / "chat_template.jinja").unlink()


def without_vocabulary(folder):
    (folder / "tokenizer.json").write_text("{}")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "no tokenizer.json"),
        (without_vocabulary, "cannot be read"),
        (without_template, "chat template"),
        (lambda folder: (folder / "generation_config.json").write_text("{"), "generation_config.json that cannot"),
        (lambda folder: (folder / "generation_config.json").write_text("[]"), "generation_config.json that cannot"),
        (lambda folder: (folder / "generation_config.json").write_bytes(b"\xff"), "generation_config.json that cannot"),
        (
            lambda folder: (folder / "generation_config.json").write_text('{"eos_token_id": "end"}'),
            "generation_config.json that cannot",
        ),
    ],
)
def test_an_unusable_tokenizer_is_one_sentence(exported, harm, said):
    _, folder = exported
    harm(folder)
    with pytest.raises(UsageError, match=said):
        load_tokenizer(PretrainedModelConfig(path=str(folder)))


def test_a_base_models_tokenizer_stops_where_its_template_ends_a_turn(exported):
    _, folder = exported
    (folder / "generation_config.json").unlink()
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"eos_token": "<|pad|>"}))
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id
    assert load_tokenizer(PretrainedModelConfig(path=str(folder))).stop_tokens == (ids("<|pad|>"), ids("<|im_end|>"))
