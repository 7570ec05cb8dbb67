"""Encoders: functions from token ids to a vector per token, and their sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dlc.errors import UnsupportedError
from dlc.language_models.checkpoints.checkpoint import Checkpoint, ModelConfig
from dlc.language_models.decoder import DecoderSizes

if TYPE_CHECKING:
    from dlc.ragged import Ragged

# token ids, a row [] per token → features, a row [size] per token.
Encoder: TypeAlias = "Callable[[Ragged], Ragged]"

ENCODER_FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "nomic_bert")
# Families whose positions begin after the id of the padding token.
_ROBERTA_TYPES = ("roberta", "xlm-roberta", "camembert")


@dataclass(frozen=True)
class EncoderSizes:
    """The sizes of an encoder.

    Attributes:
        vocabulary: The number of token ids.
        max_tokens: The maximum number of tokens of a text.
        hidden: The number of features of a token.
    """

    vocabulary: int
    max_tokens: int
    hidden: int

    @staticmethod
    def of(checkpoint: Checkpoint) -> EncoderSizes:
        """Read the sizes. Raises UnsupportedError for another family, ModelError for missing or contradictory sizes."""
        if checkpoint.model_type not in ENCODER_FAMILIES:
            raise UnsupportedError(
                f"{checkpoint.config.source}: model_type {checkpoint.model_type!r} is not an encoder; expected one of "
                f"{', '.join(ENCODER_FAMILIES)}"
            )
        sizes = DecoderSizes.of(checkpoint.config)
        max_tokens = sizes.context - first_position(checkpoint.config, checkpoint.model_type)
        return EncoderSizes(sizes.vocabulary, max_tokens, sizes.hidden)


def first_position(config: ModelConfig, model_type: str) -> int:
    """Return the position of the first token of a text."""
    padding = config.get("pad_token_id")
    return (padding if isinstance(padding, int) and padding >= 0 else 0) + 1 if model_type in _ROBERTA_TYPES else 0
