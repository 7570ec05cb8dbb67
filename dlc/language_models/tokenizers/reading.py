"""The tokenizer of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from dlc.errors import ModelError, UnsupportedError
from dlc.language_models.checkpoints.checkpoint import Checkpoint
from dlc.language_models.tokenizers.library_tokenizer import LibraryTokenizer
from dlc.language_models.tokenizers.score_tokenizer import ScoreTokenizer
from dlc.language_models.tokenizers.tokenizer import Tokenizer


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    """Return the tokenizer of a checkpoint. Raises ModelError if it has none, UnsupportedError for an unknown kind."""
    if isinstance(checkpoint.tokenizer, Path):
        return LibraryTokenizer.of_folder(checkpoint.tokenizer)
    metadata = cast("Mapping[str, Any]", checkpoint.tokenizer)
    kind = metadata.get("tokenizer.ggml.model")
    match kind if isinstance(kind, str | None) else "":
        case "llama":
            return ScoreTokenizer.of_gguf(metadata, checkpoint.config.source)
        case "gpt2":
            return LibraryTokenizer.of_gguf(metadata, checkpoint.config.source)
        case None:
            raise ModelError(f"{checkpoint.config.source}: the file has no tokenizer; pass token ids")
        case _:
            raise UnsupportedError(
                f"{checkpoint.config.source}: tokenizer.ggml.model = {kind!r} is not supported; expected llama or gpt2"
            )
