"""Embeddings of texts: a compiled encoder and its tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import ArgumentError
from dlc.files.atomic_writes import to_path
from dlc.files.json_files import read_json
from dlc.language_models.checkpoints.checkpoint import Checkpoint
from dlc.language_models.checkpoints.reading import read_checkpoint
from dlc.language_models.compiled_checkpoint import load_or_compile
from dlc.language_models.encoder import ENCODER_FAMILIES, EncoderSizes
from dlc.language_models.pooling import Pooling
from dlc.language_models.tokenizers.reading import tokenizer_of
from dlc.language_models.tokenizers.tokenizer import Tokenizer
from dlc.models.target_descriptions import target_description
from dlc.options import Options
from dlc.runtime.models.model import Model

# A text, or its token ids.
EmbeddingInput = str | Sequence[int]
# Maximum tokens of a batch of several texts, which limits the memory of activations.
_MAX_BATCH_TOKENS = 4096


@dataclass
class EmbeddingModel:
    """A compiled encoder.

    Attributes:
        model: The program: token ids [L] and the number of tokens of each text [B] → vectors [B, size].
        vocabulary_size: The number of token ids.
        max_tokens: The maximum number of tokens of a text.
        size: The number of features of a vector.
    """

    name: str
    model: Model
    vocabulary_size: int
    max_tokens: int
    size: int
    _read_tokenizer: Callable[[], Tokenizer]
    _tokenizer: Tokenizer | None = field(default=None, repr=False)

    @staticmethod
    def load(
        path: str | PathLike[str],
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        target: str = "cpu",
        num_threads: int | None = None,
        cpus: Iterable[int] | None = None,
        inter_op: str = "auto",
        cache: bool | None = None,
        progress: Callable[[str], None] = lambda step: None,
    ) -> EmbeddingModel:
        """Compile the encoder of a Hugging Face folder, or load it from the cache.

        `pooling` is mean, cls (the first token), last or max, and `normalize` divides vectors by their norm; by default as the
        folder's sentence-transformers settings request, else the mean without normalization. The other arguments are those of
        `LanguageModel.load`. Raises ModelError and UnsupportedError for checkpoints that cannot be read.
        """
        path = Path(to_path(path))
        options = Options.of(num_threads=num_threads, cpus=cpus, inter_op=inter_op, cache=cache)
        progress("reading the checkpoint")
        checkpoint = read_checkpoint(path)
        stored = Pooling.of_folder(path)
        kind, is_normalized = pooling or stored.kind, stored.normalize if normalize is None else normalize
        chosen = replace(stored, kind=kind, normalize=is_normalized)
        sizes = EncoderSizes.of(checkpoint)
        settings = f"embeddings {chosen.kind} {chosen.normalize}"

        def compile(checkpoint: Checkpoint) -> Model:
            # Imported here because cached models run without the compiler.
            from dlc.language_models.encoder_program import compile_encoder

            progress("compiling the encoder")
            return compile_encoder(checkpoint, chosen, target, options)

        description = target_description(target, options.device)
        model = load_or_compile(checkpoint, path, settings, description, options, compile, progress)
        limit = min(sizes.max_tokens, chosen.max_tokens or sizes.max_tokens)
        return EmbeddingModel(checkpoint.name, model, sizes.vocabulary, limit, sizes.hidden, lambda: tokenizer_of(checkpoint))

    def token_ids(self, text: EmbeddingInput) -> list[int]:
        """Return the token ids of a text, with the special tokens of the model.

        Raises ArgumentError for no tokens, an unknown token, and more tokens than the model supports.
        """
        if isinstance(text, str):
            if self._tokenizer is None:
                self._tokenizer = self._read_tokenizer()
            ids = self._tokenizer.encode(text)
        elif isinstance(cast(object, text), Iterable) and not isinstance(text, bytes):
            ids = list(text)
        else:
            raise ArgumentError(f"{text!r:.60}: expected a text, a str, or the list of its token ids")
        # The type of elements is not checked by callers.
        if not ids or not all(isinstance(cast(object, i), int | np.integer) and 0 <= i < self.vocabulary_size for i in ids):
            raise ArgumentError(f"tokens {ids[:8]}…: expected one or more ids below {self.vocabulary_size}")
        if len(ids) > self.max_tokens:
            raise ArgumentError(f"a text has {len(ids)} tokens; {self.name} supports up to {self.max_tokens}: split the text")
        return ids

    def embed(self, texts: Sequence[EmbeddingInput]) -> NDArray[np.float32]:
        """Return the vectors of texts, f32 [number of texts, size]. Raises what `token_ids` raises."""
        if isinstance(cast(object, texts), str | bytes) or not isinstance(cast(object, texts), Iterable):
            raise ArgumentError(f"texts = {texts!r:.60}; expected a list of texts")
        return self.embed_ids([self.token_ids(text) for text in texts])

    def embed_ids(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Return the vectors of texts given as results of `token_ids`."""
        vectors = np.empty((len(texts), self.size), np.float32)
        for batch in _batches(texts):
            tokens = np.concatenate([np.asarray(texts[i], np.int32) for i in batch])
            lengths = np.array([len(texts[i]) for i in batch], np.int64)
            (result,) = self.model.run_unchecked([tokens, lengths])
            vectors[batch] = np.asarray(result)
        return vectors


def embed(
    model: str | PathLike[str] | EmbeddingModel,
    texts: Sequence[EmbeddingInput],
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    target: str = "cpu",
    num_threads: int | None = None,
    cache: bool | None = None,
) -> NDArray[np.float32]:
    """Return the embeddings of texts, f32 [number of texts, features] (docs/embeddings.md).

    Args:
        model: The path of a Hugging Face folder with an encoder, or a model of `EmbeddingModel.load`, shared by calls.
        texts: Texts, or their token ids with special tokens.
        pooling, normalize: See `EmbeddingModel.load`; for a path only.

    Raises ArgumentError for a text with more tokens than the model supports, and what `EmbeddingModel.load` raises.
    """
    if not isinstance(model, EmbeddingModel):
        model = EmbeddingModel.load(
            model, pooling=pooling, normalize=normalize, target=target, num_threads=num_threads, cache=cache
        )
    elif pooling is not None or normalize is not None:
        raise ArgumentError("pooling and normalize are compiled into the model; pass them to EmbeddingModel.load")
    return model.embed(texts)


def is_encoder(path: Path) -> bool:
    """Return whether a path is a folder with an encoder. Raises ModelError if its config.json cannot be read."""
    config = path / "config.json"
    return path.is_dir() and config.exists() and read_json(config).get("model_type") in ENCODER_FAMILIES


def _batches(texts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield batches as the indices of consecutive texts."""
    batch, tokens = list[int](), 0
    for index, text in enumerate(texts):
        if batch and tokens + len(text) > _MAX_BATCH_TOKENS:
            yield batch
            batch, tokens = [], 0
        batch.append(index)
        tokens += len(text)
    if batch:
        yield batch
