"""Language models that generate text: a compiled model, its tokenizer, and the caches of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from dlc.errors import ArgumentError, UnsupportedError
from dlc.files.atomic_writes import to_path
from dlc.language_models.checkpoints.checkpoint import Checkpoint
from dlc.language_models.checkpoints.reading import read_checkpoint
from dlc.language_models.compiled_checkpoint import load_or_compile
from dlc.language_models.drafts import Drafter, ModelDrafter
from dlc.language_models.generated_text import Generation
from dlc.language_models.rotary_frequencies import max_positions
from dlc.language_models.sampling import Sampling
from dlc.language_models.setting_limits import require_integer
from dlc.language_models.step_runner import StepRunner, TextPart
from dlc.language_models.step_sizes import ACTIVATION_BITS, CACHE_DTYPES, StepSizes, prompt_tokens
from dlc.language_models.text_batch import TextBatch
from dlc.language_models.tokenizers.reading import tokenizer_of
from dlc.language_models.tokenizers.tokenizer import Tokenizer
from dlc.models.target_descriptions import target_description
from dlc.options import Options
from dlc.runtime.models.model import Model

# The default number of positions of the caches, and their maximum unless the caller states another.
_DEFAULT_CONTEXT_POSITIONS = 8192
# The number of positions is a multiple of this.
_CONTEXT_MULTIPLE = 64
# The maximum number of texts that are decoded together.
MAX_TEXTS = 64


@dataclass
class LanguageModel:
    """A compiled language model.

    Attributes:
        model: The programs: for one token, for the tokens of a prompt, and for a token of each of several texts.
        context: The maximum number of tokens of a text.
    """

    name: str
    model: Model
    context: int
    _read_tokenizer: Callable[[], Tokenizer]
    _tokenizer: Tokenizer | None = field(default=None, repr=False)

    @staticmethod
    def load(
        path: str | PathLike[str],
        *,
        target: str = "cpu",
        context: int | None = None,
        cache_dtype: str = "f16",
        activation_bits: int = 8,
        max_texts: int = 1,
        draft_tokens: int = 0,
        num_threads: int | None = None,
        cpus: Iterable[int] | None = None,
        inter_op: str = "auto",
        cache: bool | None = None,
        progress: Callable[[str], None] = lambda step: None,
    ) -> LanguageModel:
        """Compile the model of a GGUF file or a Hugging Face folder, or load it from the cache.

        `context` is the maximum number of tokens of a text, by default that of the model up to 8192. `cache_dtype` is the
        dtype of the KV cache: f16, f32, or int8 with a scale per token and head. `activation_bits` is the minimum number of
        bits to which products with quantized weights round activations: 8 for speed, or 16 for accuracy. `max_texts` is the
        number of texts that a batch decodes together; it is compiled into additional programs. `draft_tokens` is the number of
        drafted tokens that a step verifies (speculative decoding), 0 for none; it needs `max_texts` = 1. `num_threads`, `cpus`,
        `inter_op` and `cache` are as in `compile_model`. Raises ModelError and UnsupportedError for checkpoints that cannot be
        read.
        """
        if cache_dtype not in CACHE_DTYPES:
            raise ArgumentError(f"cache_dtype = {cache_dtype!r}; expected {' or '.join(CACHE_DTYPES)}")
        if activation_bits not in ACTIVATION_BITS:
            raise ArgumentError(f"activation_bits = {activation_bits!r}; expected {' or '.join(map(str, ACTIVATION_BITS))}")
        require_integer("max_texts", max_texts, 1, MAX_TEXTS)
        require_integer("draft_tokens", draft_tokens, 0, MAX_TEXTS - 1)
        if draft_tokens and max_texts > 1:
            raise ArgumentError(f"draft_tokens = {draft_tokens} with max_texts = {max_texts}; drafts need max_texts = 1")
        if context is not None:
            require_integer("context", context, 1)
        path = Path(to_path(path))
        options = Options.of(num_threads=num_threads, cpus=cpus, inter_op=inter_op, cache=cache)
        description = target_description(target, options.device)
        progress("reading the checkpoint")
        checkpoint = read_checkpoint(path)
        limit = max_positions(checkpoint.config)
        positions = min(limit, _DEFAULT_CONTEXT_POSITIONS) if context is None else context
        if positions > limit:
            raise ArgumentError(f"context = {positions!r}; the model {checkpoint.name} supports 1 to {limit} tokens")
        capacity = -(-positions // _CONTEXT_MULTIPLE) * _CONTEXT_MULTIPLE
        sizes = StepSizes(capacity, prompt_tokens(description), cache_dtype, max_texts, draft_tokens, activation_bits)

        def compile(checkpoint: Checkpoint) -> Model:
            # Imported here because cached models run without the compiler.
            from dlc.language_models.step_program import compile_steps

            return compile_steps(checkpoint, sizes, target, options, progress)

        model = load_or_compile(checkpoint, path, str(sizes), description, options, compile, progress)
        return LanguageModel(checkpoint.name, model, positions, lambda: tokenizer_of(checkpoint))

    @property
    def vocabulary_size(self) -> int:
        """The number of token ids."""
        return int(self.model.outputs[1].shape[1])

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer. Raises ModelError if the checkpoint has none."""
        if self._tokenizer is None:
            self._tokenizer = self._read_tokenizer()
        return self._tokenizer

    def chat_prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the token ids of a conversation, which the model continues as the assistant.

        Raises UnsupportedError if the checkpoint has no chat template, ModelError if the template fails.
        """
        # Imported here because only conversations need the template engine.
        from dlc.language_models.chat_template import render_chat

        tokenizer = self.tokenizer
        if not tokenizer.chat_template:
            raise UnsupportedError(f"{self.name} has no chat template; pass the text itself as the prompt")
        text = render_chat(tokenizer.chat_template, messages, tokenizer.special_texts)
        # Templates contain the begin-of-text token.
        begins = tokenizer.special_texts.get("bos_token")
        return self.text_prompt(text, add_special=begins is None or not text.startswith(begins))

    def text_prompt(self, text: str, *, add_special: bool = True) -> list[int]:
        """Return the token ids of a text; `add_special` adds the token that begins texts, if the model has one.

        Raises ArgumentError for a text whose tokens exceed the context, by its number of characters.
        """
        longest = self.tokenizer.max_token_characters
        # Splitting megabytes takes seconds.
        if longest is not None and len(text) > self.context * longest:
            raise ArgumentError(
                f"a prompt of {len(text)} characters exceeds the context of {self.context} tokens, which have at most "
                f"{longest} characters each"
            )
        return self.tokenizer.encode(text, add_special=add_special)

    def session(self) -> TextSession:
        """Return a session with empty caches."""
        return TextSession(self)

    def batch(self, drafter: Drafter | None = None) -> TextBatch:
        """Return an empty batch, whose texts are decoded together; its caches have `max_texts` slots.

        `drafter` proposes the tokens that a model with `draft_tokens` verifies; by default they are looked up in the text.
        Raises ArgumentError for a drafter without `draft_tokens`.
        """
        return TextBatch(self.model, self.tokenizer, self.context, drafter)

    def drafter_of(self, draft_model: LanguageModel) -> Drafter:
        """Return a drafter that proposes the most probable tokens of a smaller model.

        Raises ArgumentError for a model with another vocabulary.
        """
        if self.vocabulary_size != draft_model.vocabulary_size:
            raise ArgumentError(
                f"draft_model {draft_model.name} has a vocabulary of {draft_model.vocabulary_size} tokens; expected the "
                f"{self.vocabulary_size} tokens of {self.name}: pass a model with the same tokenizer"
            )
        return ModelDrafter(draft_model.session(), draft_model.context)


class TextSession:
    """The tokens of a text so far, and the caches of their keys and values.

    `token` is the token that follows them, and `logits` [V] its distribution.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.position = 0
        self.token = 0
        self.logits: Any = None
        self._context = model.context
        self._runner = StepRunner(model.model)

    def advance(self, tokens: Sequence[int], sampling: Sampling) -> int:
        """Append tokens to the text and return the token that follows.

        Raises ArgumentError for no tokens, an unknown token, and more tokens than the context has.
        """
        self._runner.require_ids(tokens)
        if self.position + len(tokens) > self._context:
            raise ArgumentError(
                f"{self.position + len(tokens)} tokens exceed the context of {self._context}; load the model with a longer one"
            )
        start = 0
        while start < len(tokens):
            size = self._runner.chunk_size(len(tokens), len(tokens) - start)
            part = TextPart(tokens[start : start + size], self.position, 0, sampling)
            (self.token,), logits = self._runner.run([part])
            self.logits = logits[0]
            self.position += size
            start += size
        return self.token


def stream(
    model: LanguageModel,
    prompt: Sequence[int],
    max_tokens: int,
    sampling: Sampling,
    *,
    ignore_end: bool = False,
    draft_model: LanguageModel | None = None,
) -> Generator[str, None, Generation]:
    """Yield the text after a prompt of token ids piece by piece, and return all of it with its speed.

    `draft_model` proposes the tokens that a model with `draft_tokens` verifies. Raises ArgumentError if it does not fit.
    """
    batch = model.batch(None if draft_model is None else model.drafter_of(draft_model))
    batch.add(prompt, max_tokens, sampling, ignore_end=ignore_end)
    while True:
        for _, event in batch.advance():
            if isinstance(event, Generation):
                return event
            if isinstance(event, Exception):
                raise event
            yield event
