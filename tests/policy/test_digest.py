import torch

from springtide.policy.digest import digest_tensors, named_weights


def tensors(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {
        "a": torch.rand(3, 4, generator=generator),
        "b": torch.rand(5, generator=generator).to(torch.bfloat16),
        "c": torch.arange(6),
    }


def test_order_and_storage_do_not_matter():
    named = tensors()
    reordered = dict(reversed(named.items()))
    reordered["a"] = named["a"].t().contiguous().t()
    assert reordered["a"].stride() != named["a"].stride()
    assert digest_tensors(named.items()) == digest_tensors(reordered.items())


def test_names_dtypes_shapes_and_bytes_do():
    named = tensors()
    flipped = named["a"].clone()
    flipped.view(torch.int32)[0, 0] ^= 1
    variants = [
        {**named, "a": flipped},
        {**named, "a": named["a"].reshape(4, 3)},
        {**named, "b": named["b"].view(torch.float16)},
        {"z" if name == "a" else name: tensor for name, tensor in named.items()},
        {name: named[name] for name in "ab"},
        {**named, "a": -0.0 * named["a"]},
    ]
    digests = {digest_tensors(variant.items()) for variant in [named, *variants]}
    assert len(digests) == len(variants) + 1


def test_tied_tensors_count_once():
    named = tensors()
    assert digest_tensors([*named.items(), ("tied", named["a"])]) == digest_tensors(named.items())
    assert digest_tensors([*named.items(), ("copy", named["a"].clone())]) != digest_tensors(named.items())


def test_weights_of_a_model_are_parameters_and_persistent_buffers_once():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2))
    model[2].weight = model[0].weight
    model.register_buffer("scratch", torch.zeros(1), persistent=False)
    names = [name for name, _ in named_weights(model)]
    assert "scratch" not in names
    assert "2.weight" not in names
    assert set(names) == set(model.state_dict()) - {"2.weight"}
    assert digest_tensors(named_weights(model)) == digest_tensors(model.state_dict().items())
