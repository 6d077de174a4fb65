"""The model as the engine runs it: weights of its own, attention over the engine's blocks.

A model is taken on only after it has shown that its attention layers are all of its memory: a pass in pieces over
the blocks must give the logits that its own forward gives in one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from springtide.core.errors import UsageError
from springtide.engines.attention import NAME
from springtide.engines.batch import Batch
from springtide.engines.blocks import Blocks
from springtide.engines.group import AttentionOptions, Row
from springtide.engines.native import AttentionKernel, attention_kernel
from springtide.engines.storage import LayerShape, PlaneShape, Storage
from springtide.policy.device import avoid_planned_attention
from springtide.policy.digest import digest_tensors, named_weights
from springtide.policy.linear import infer_with_onednn

PROBE_LENGTH = 7
"""Tokens of the pass that a model proves itself on."""

KNOWN_LAYERS = {"full_attention", "sliding_attention", "attention"}


class Network:
    def __init__(self, model: Any, *, native: bool = True) -> None:
        """Takes `model` over: puts it in eval mode and switches its attention. UsageError names what is lacking.

        `native` allows the compiled attention kernel.
        """
        _require_plain_attention(model)
        self.model = model.eval().requires_grad_(False)
        self.config = model.config.get_text_config()
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        avoid_planned_attention(self.device)
        probe = torch.arange(PROBE_LENGTH, device=self.device) % self.config.vocab_size
        with torch.inference_mode():
            expected = self.model(input_ids=probe[None], use_cache=False).logits[0]
            self.model.set_attn_implementation(NAME)
            infer_with_onednn(self.model)
            recorder = self._discover(probe)
            self.layers = [recorder.layers[layer] for layer in sorted(recorder.layers)]
            self._kernels = self._compiled(recorder) if native else None
            self._prove(probe, expected)

    @property
    def name(self) -> str:
        return type(self.model).__name__

    @property
    def has_kernels(self) -> bool:
        """Whether attention goes through the compiled kernel, which does not care where blocks lie."""
        return self._kernels is not None

    def batch(self, storage: Storage, rows: Sequence[Row], *, steps: int = 1) -> Batch:
        """A pass over `rows`, which are in `row_order`."""
        return Batch(storage, rows, steps=steps, kernels=self._kernels)

    def logits(self, tokens: torch.Tensor, batch: Batch, *, last_only: bool) -> torch.Tensor:
        """`tokens` [tokens] as `batch` packs them; logits [rows, V] after each row's last token, or [tokens, V]."""
        keep = batch.last if last_only else 0
        output = self.model(
            input_ids=tokens[None],
            position_ids=batch.positions[None],
            use_cache=False,
            logits_to_keep=keep,
            kv_batch=batch,
        )
        logits: torch.Tensor = output.logits
        return logits[0]

    def load(self, weights: Mapping[str, torch.Tensor]) -> str:
        """Copy `weights` into the model's own tensors and return the digest of these."""
        own = dict(named_weights(self.model))
        missing = [name for name in own if name not in weights]
        unknown = [name for name in weights if name not in own and name not in self.model.state_dict()]
        if missing or unknown:
            raise ValueError(
                f"weights do not fit {self.name}: missing {missing[:3]}, unknown {unknown[:3]}; "
                "publish the named weights of a model of the same architecture."
            )
        with torch.no_grad():
            for name, tensor in own.items():
                if tensor.shape != weights[name].shape:
                    raise ValueError(
                        f"weights '{name}' have shape {tuple(weights[name].shape)}, {self.name} has "
                        f"{tuple(tensor.shape)}; publish the named weights of a model of the same architecture."
                    )
                tensor.copy_(weights[name])
        return digest_tensors(own.items())

    def _discover(self, probe: torch.Tensor) -> "_Recorder":
        """What the model's attention hands over, per layer."""
        recorder = _Recorder()
        try:
            self.model(input_ids=probe[None], use_cache=False, kv_batch=recorder)
        except (TypeError, AttributeError) as error:
            raise _unsupported(
                self.model, "does not hand its attention to the attention interface of transformers"
            ) from error
        if sorted(recorder.layers) != list(range(self.config.num_hidden_layers)):
            raise _unsupported(self.model, "has layers that keep no keys and values of their own")
        return recorder

    def _compiled(self, recorder: "_Recorder") -> list[AttentionKernel] | None:
        """The kernel of each layer, if every layer can have one."""
        if not recorder.plain or self.device.type != "cpu" or self.dtype != torch.float32:
            return None
        kernels = [attention_kernel(shape, recorder.heads[layer]) for layer, shape in enumerate(self.layers)]
        return [kernel for kernel in kernels if kernel is not None] if all(kernels) else None

    def _prove(self, probe: torch.Tensor, expected: torch.Tensor) -> None:
        blocks = Blocks(64)
        block = blocks.allocate(PROBE_LENGTH)
        assert block is not None
        storage = Storage(self.layers, blocks.capacity, device=self.device, dtype=self.dtype)
        pieces = [
            self.logits(probe[start:end], self.batch(storage, [Row(block, start, end - start)]), last_only=False)
            for start, end in ((0, 3), (3, PROBE_LENGTH - 1), (PROBE_LENGTH - 1, PROBE_LENGTH))
        ]
        scale = expected.float().abs().max().clamp(min=1.0)
        tolerance = 1e-3 if self.dtype == torch.float32 else 0.1
        error = (torch.cat(pieces).float() - expected.float()).abs().max() / scale
        if float(error) > tolerance:
            raise _unsupported(self.model, "computes something else when its context is continued from keys and values")


class _Recorder:
    def __init__(self) -> None:
        self.layers: dict[int, LayerShape] = {}
        self.heads: dict[int, int] = {}
        self.plain = True

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        self.plain = self.plain and options.softcap is None and options.sinks is None
        self.heads[layer] = query.shape[1]
        self.layers[layer] = LayerShape(PlaneShape(*key.shape[1:]), PlaneShape(*value.shape[1:]))
        return query.new_zeros(*query.shape[:2], value.shape[-1])


def _require_plain_attention(model: Any) -> None:
    config = model.config.get_text_config()
    if model.config.is_encoder_decoder:
        raise _unsupported(model, "is an encoder-decoder")
    if getattr(model, "_is_stateful", False):
        raise _unsupported(model, "keeps a recurrent state")
    if not getattr(model, "_supports_attention_backend", False):
        raise _unsupported(model, "does not hand its attention to the attention interface of transformers")
    others = sorted(set(getattr(config, "layer_types", None) or ()) - KNOWN_LAYERS)
    if others:
        raise _unsupported(model, f"has layers of type {', '.join(others)}")
    for kind in sorted(_rope_types(config)):
        if "dynamic" in kind or kind == "longrope":
            raise UsageError(
                f"{type(model).__name__} has rope_type '{kind}', whose rotary frequencies follow the longest sequence "
                "of a batch, so that log-probs would depend on what a sequence is batched with; use a model with "
                "another rope_type (default, linear, llama3, yarn)."
            )


def _rope_types(config: Any) -> set[str]:
    """Of all layers; the parameters are one table, or one for each type of layer."""
    parameters: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    tables = [parameters, *(value for value in parameters.values() if isinstance(value, dict))]
    return {str(table["rope_type"]) for table in tables if "rope_type" in table}


def _unsupported(model: Any, reason: str) -> UsageError:
    return UsageError(
        f"{type(model).__name__} {reason}; the torch engine runs decoders whose whole cache is per-layer keys "
        "and values: choose such a model (Qwen3, Llama, Gemma 3, Mistral, Qwen3-MoE and their like)."
    )
