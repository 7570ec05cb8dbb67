"""Language models that generate text: a compiled model, its tokenizer, and the caches of a conversation."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from dlc.backends.registry import backend_of
from dlc.caching.cache import Cache
from dlc.caching.keys import CacheKey, compilation_fields, file_digest
from dlc.caching.model_cache import MODEL_KIND, reason_not_cached
from dlc.errors import ArgumentError, UnsupportedError
from dlc.files.atomic_writes import to_path
from dlc.language_models.chat_template import render_chat
from dlc.language_models.checkpoints.reading import read_checkpoint
from dlc.language_models.families.registry import build_decoder
from dlc.language_models.sampling import Sampling
from dlc.language_models.step_program import CACHE_DTYPES, StepSizes, compile_steps, prompt_tokens
from dlc.language_models.tokenizers.reading import tokenizer_of
from dlc.language_models.tokenizers.tokenizer import Tokenizer
from dlc.options import Options
from dlc.runtime.load import load
from dlc.runtime.models.model import Model
from dlc.runtime.models.specialized_model import SpecializedModel
from dlc.runtime.saving.container import save

# The default number of positions of the caches, and their maximum unless the caller states another.
_DEFAULT_CONTEXT_POSITIONS = 8192
# The number of positions is a multiple of this.
_CONTEXT_MULTIPLE = 64


@dataclass(frozen=True)
class Generation:
    """Generated text.

    Attributes:
        text: The text after the prompt.
        tokens: Its token ids.
        prompt_tokens: The token ids of the prompt.
        finish_reason: `end` if the model ended the text, `length` if the maximum was reached.
        tokens_per_s, prompt_tokens_per_s: The speed of generation and of prompt processing, in tokens per second.
    """

    text: str
    tokens: list[int]
    prompt_tokens: list[int]
    finish_reason: str
    tokens_per_s: float
    prompt_tokens_per_s: float


@dataclass
class LanguageModel:
    """A compiled language model.

    Attributes:
        model: The programs: a call with one token, and one for the tokens of a prompt.
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
        num_threads: int | None = None,
        cache: bool | None = None,
        progress: Callable[[str], None] = lambda step: None,
    ) -> LanguageModel:
        """Compile the model of a GGUF file or a Hugging Face folder, or load it from the cache.

        `context` is the maximum number of tokens of a text, by default that of the model up to 8192. `cache_dtype` is the
        dtype of the KV cache, f32 or f16. Raises ModelError and UnsupportedError for checkpoints that cannot be read.
        """
        if cache_dtype not in CACHE_DTYPES:
            raise ArgumentError(f"cache_dtype = {cache_dtype!r}; expected {' or '.join(CACHE_DTYPES)}")
        path = Path(to_path(path))
        options = Options.of(num_threads=num_threads, cache=cache)
        backend = backend_of(target, options.device)
        progress("reading the checkpoint")
        checkpoint = read_checkpoint(path)
        limit = checkpoint.config.size("max_position_embeddings", 2048)
        positions = min(limit, _DEFAULT_CONTEXT_POSITIONS) if context is None else context
        if not 1 <= positions <= limit:
            raise ArgumentError(f"context = {positions!r}; the model {checkpoint.name} supports 1 to {limit} tokens")
        sizes = StepSizes(-(-positions // _CONTEXT_MULTIPLE) * _CONTEXT_MULTIPLE, prompt_tokens(backend.target), cache_dtype)

        def make() -> Model:
            return compile_steps(build_decoder(checkpoint), sizes, checkpoint.name, target, options, progress)

        if reason_not_cached(backend.target, options) is not None:
            model = make()
        else:
            progress("looking in the cache")
            digests = {"file": " ".join(map(file_digest, checkpoint.files)), "shapes": str(sizes)}
            key = CacheKey({**digests, **compilation_fields(backend.target, options)})
            about: dict[str, Any] = {
                "model": checkpoint.name,
                "inputs": [],
                "file": str(path.resolve()),
                "fields": dict(key.fields),
            }
            model, _ = Cache.standard().fetch(
                MODEL_KIND, key.digest, lambda entry: load(entry, num_threads=options.num_threads), make, _write, about
            )
        return LanguageModel(checkpoint.name, model, positions, lambda: tokenizer_of(checkpoint))

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
        tokenizer = self.tokenizer
        if not tokenizer.chat_template:
            raise UnsupportedError(f"{self.name} has no chat template; pass the text itself as the prompt")
        text = render_chat(tokenizer.chat_template, messages, tokenizer.special_texts)
        # Templates contain the begin-of-text token.
        begins = tokenizer.special_texts.get("bos_token")
        return tokenizer.encode(text, add_special=begins is None or not text.startswith(begins))

    def session(self) -> TextSession:
        """Return a session with empty caches."""
        return TextSession(self)


class TextSession:
    """The tokens of a text so far, and the caches of their keys and values.

    `token` is the token that follows them, and `logits` [V] its distribution.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.position = 0
        self.token = 0
        self._model = model
        self._program = model.model
        infos = {info.name: info for info in self._program.inputs}
        self._donated = [
            np.zeros([int(n) for n in i.shape], i.dtype) for n, i in infos.items() if n.startswith(("seen", "caches"))
        ]
        artifact = self._program.artifact
        assert isinstance(artifact, SpecializedModel)
        sizes = {int(e.program.inputs[0].shape[0]): e.program for e in artifact.specializations.entries}
        self._programs = dict(sorted(sizes.items()))
        self.logits: Any = None

    def advance(self, tokens: Sequence[int], sampling: Sampling) -> int:
        """Append tokens to the text and return the token that follows.

        Raises ArgumentError for no tokens, an unknown token, and more tokens than the context has.
        """
        vocabulary = self._donated[0].shape[0]
        if not tokens or not all(0 <= t < vocabulary for t in tokens):
            raise ArgumentError(f"tokens {list(tokens)[:8]}…: expected one or more ids below {vocabulary}")
        if self.position + len(tokens) > self._model.context:
            raise ArgumentError(
                f"{self.position + len(tokens)} tokens exceed the context of {self._model.context}; load the model with a "
                "longer one"
            )
        settings = list(sampling.arrays().values())
        start = 0
        while start < len(tokens):
            size = self._part_size(len(tokens), len(tokens) - start)
            part = tokens[start : start + size]
            padded = np.zeros(size, np.int32)
            padded[: len(part)] = part
            inputs = [padded, np.asarray(len(part), np.int32), np.asarray(self.position, np.int64), *settings, *self._donated]
            token, self.logits, *_ = self._programs[size].run_unchecked(inputs)
            self.position += len(part)
            start += len(part)
            self.token = int(token)
        return self.token

    def _part_size(self, total: int, remaining: int) -> int:
        """Return the chunk size of the next step, for a prompt of `total` tokens.

        The largest size is for long prompts, while the remaining tokens fill at least three quarters of it.
        """
        single, *sizes = self._programs
        if remaining == single:
            return single
        largest = sizes[-1]
        return largest if total > largest and 4 * remaining >= 3 * largest else sizes[0]


def stream(
    model: LanguageModel, prompt: Sequence[int], max_tokens: int, sampling: Sampling, *, ignore_end: bool = False
) -> Generator[str, None, Generation]:
    """Yield the text after a prompt of token ids piece by piece, and return all of it with its speed."""
    session, decoder = model.session(), codecs.getincrementaldecoder("utf-8")("replace")
    tokenizer, pieces = model.tokenizer, list[str]()
    limit = min(max_tokens, model.context - len(prompt))
    start = perf_counter()
    token = session.advance(prompt, sampling)
    prompt_seconds = perf_counter() - start
    tokens: list[int] = []
    reason, start = "length", perf_counter()
    while len(tokens) < limit:
        if token in tokenizer.end_tokens and not ignore_end:
            reason = "end"
            break
        tokens.append(token)
        piece = decoder.decode(tokenizer.decode_bytes(token))
        pieces.append(piece)
        if piece:
            yield piece
        if len(tokens) < limit:
            token = session.advance([token], sampling)
    seconds = perf_counter() - start
    if rest := decoder.decode(b"", final=True):
        pieces.append(rest)
        yield rest
    # The first token is the result of the prompt.
    speed = max(len(tokens) - 1, 0) / seconds if seconds else 0.0
    return Generation("".join(pieces), tokens, list(prompt), reason, speed, len(prompt) / prompt_seconds)


def _write(model: Model, path: Path) -> None:
    assert model.artifact is not None
    save(path, model.artifact)
