"""Tokenizers: fitted to an environment's own text, or read from a model folder; one face for both.

Invariant: untrusted text can never become a control token. `encode(text, special=False)` runs on a copy of the
tokenizer that does not know its control tokens, so "<|im_end|>" in a command's output yields the ordinary tokens of
those ten characters. A control token is every added one, flagged as special or not: Qwen's "<tool_call>" and "<think>"
are not. Only text that the template or the renderer itself wrote is encoded with `special=True`.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from springtide.core.errors import UsageError
from springtide.policy.config import PretrainedModelConfig
from springtide.policy.template import CHAT_TEMPLATE, END, PAD, SPECIAL_TOKENS


class TransformersTokenizer:
    """Implements ports.tokenizer.ChatTokenizer over a fast tokenizer of `transformers` (`inner`)."""

    image_placeholder = ""

    def __init__(self, inner: Any, *, name: str, stop_tokens: tuple[int, ...]) -> None:
        self.inner = inner
        self.name = name
        self.stop_tokens = stop_tokens
        self.pad_token: int = inner.pad_token_id if inner.pad_token_id is not None else stop_tokens[0]
        self.vocabulary_size: int = len(inner)
        self._backend = _bare_copy(inner)
        self._plain_backend = _plain_copy(inner)

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Tokens of `text`, none added. Without `special`, no control token comes out, whatever the text says."""
        backend = self._backend if special else self._plain_backend
        tokens: list[int] = backend.encode(text, add_special_tokens=False).ids
        return tokens

    def decode(self, tokens: Sequence[int], *, skip_special: bool = False) -> str:
        """Text of `tokens`; bytes that are not UTF-8 become U+FFFD."""
        text: str = self._backend.decode(list(tokens), skip_special_tokens=skip_special)
        return text

    def apply_template(
        self, messages: Sequence[dict[str, Any]], *, tools: Sequence[dict[str, Any]], generation_prompt: bool
    ) -> str:
        """The chat template's text for the conversation."""
        text: str = self.inner.apply_chat_template(
            list(messages), tools=list(tools) or None, add_generation_prompt=generation_prompt, tokenize=False
        )
        return text


def fit_tokenizer(texts: Iterable[str], *, vocabulary: int, name: str = "tiny") -> TransformersTokenizer:
    """A byte-level BPE of at most `vocabulary` tokens fitted to `texts`, with a chat template.

    Digits are never merged, so numbers keep one token per digit. The result is a function of the arguments.
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer=trainer)
    inner = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[token for token in SPECIAL_TOKENS if token not in (PAD, END)],
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )
    return TransformersTokenizer(inner, name=name, stop_tokens=(inner.convert_tokens_to_ids(END),))


def load_tokenizer(config: PretrainedModelConfig, *, name: str = "") -> TransformersTokenizer:
    """The tokenizer in the model folder `config.path`. UsageError if it is missing, slow or has no chat template.

    `name` is what messages call it; by default the path.
    """
    folder = Path(config.path).expanduser()
    if not (folder / "tokenizer.json").is_file():
        raise UsageError(
            f"model.path '{config.path}' has no tokenizer.json; download the tokenizer's files into the same folder."
        )
    try:
        inner = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # the tokenizer file's reader raises bare Exception
        raise UsageError(
            f"model.path '{config.path}' has a tokenizer that cannot be read; check that its download is complete."
        ) from error
    if not getattr(inner, "chat_template", None):
        raise UsageError(
            f"model.path '{config.path}' has a tokenizer without a chat template; use an instruction-tuned model, or "
            "add a chat_template.jinja to the folder."
        )
    return TransformersTokenizer(inner, name=name or config.path, stop_tokens=_stop_tokens(inner, folder))


def _stop_tokens(inner: Any, folder: Path) -> tuple[int, ...]:
    """What ends an assistant turn: the tokens that generation_config.json and the tokenizer name, and the added
    token that the chat template itself puts behind an assistant message (base models often name another)."""
    stops: list[int | None] = []
    generation = folder / "generation_config.json"
    if generation.is_file():
        stops += _named_stops(generation)
    stops.append(inner.eos_token_id)
    probe = "springtide"
    try:
        rendered = inner.apply_chat_template(
            [{"role": "user", "content": "q"}, {"role": "assistant", "content": probe}], tokenize=False
        )
    except Exception:  # a template may raise anything; the renderer's check says what it refuses
        rendered = ""
    after = inner(rendered.rpartition(probe)[2], add_special_tokens=False).input_ids
    if after and after[0] in inner.added_tokens_decoder:
        stops.append(after[0])
    unique = tuple(dict.fromkeys(stop for stop in stops if stop is not None))
    if not unique:
        raise UsageError(
            f"model.path '{folder}' names no token that ends a turn; add eos_token_id to its generation_config.json."
        )
    return unique


def _named_stops(generation: Path) -> list[int]:
    """What `generation_config.json` names. UsageError if it is not what transformers writes."""
    try:
        settings = json.loads(generation.read_text(encoding="utf-8"))
        named = settings.get("eos_token_id")
        return [int(stop) for stop in (named if isinstance(named, list) else [named]) if stop is not None]
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(
            f"model.path '{generation.parent}' has a generation_config.json that cannot be read ({error}); download it "
            "again or remove it."
        ) from error


def _bare_copy(inner: Any) -> Tokenizer:
    return _bare(inner.backend_tokenizer.to_str())


def _plain_copy(inner: Any) -> Tokenizer:
    """A copy that takes added tokens in its input for the characters that they are written with."""
    described = json.loads(inner.backend_tokenizer.to_str())
    for token in described["added_tokens"]:
        # White space controls nothing, and an added token may be how a model writes every paragraph (Gemma's).
        token["special"] = token["special"] or not token["content"].isspace()
    copy = _bare(json.dumps(described))
    copy.encode_special_tokens = True
    return copy


def _bare(description: str) -> Tokenizer:
    copy = Tokenizer.from_str(description)
    copy.no_padding()
    copy.no_truncation()
    return copy
