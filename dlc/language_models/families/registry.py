"""The families by the names that Hugging Face gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from dlc.errors import UnsupportedError
from dlc.language_models.checkpoints.checkpoint import Checkpoint, ModelConfig, ModelWeights
from dlc.language_models.decoder import Decoder
from dlc.language_models.encoder import ENCODER_FAMILIES, Encoder
from dlc.language_models.families.bert import bert
from dlc.language_models.families.gemma import gemma
from dlc.language_models.families.gpt2 import gpt2
from dlc.language_models.families.llama import llama
from dlc.language_models.families.olmo import olmo
from dlc.language_models.families.phi3 import phi3

Family: TypeAlias = "Callable[[ModelConfig, ModelWeights], Decoder]"

FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe"), llama),
    **{name: partial(gemma, model_type=name) for name in ("gemma2", "gemma3_text")},
    **{name: partial(olmo, model_type=name) for name in ("olmo", "olmo2")},
    "phi3": phi3,
    "gpt2": gpt2,
}


def build_encoder(checkpoint: Checkpoint) -> Encoder:
    """Build the encoder of a checkpoint, whose model type is an encoder family. Raises what `build_decoder` raises."""
    encoder = bert(checkpoint.config, checkpoint.weights, checkpoint.model_type)
    checkpoint.config.require_all_read()
    checkpoint.weights.require_all_read()
    return encoder


def build_decoder(checkpoint: Checkpoint) -> Decoder:
    """Build the decoder of a checkpoint.

    Raises UnsupportedError for an unknown family, option or tensor, and ModelError for a missing or mismatched one.
    """
    family = FAMILIES.get(checkpoint.model_type)
    if checkpoint.model_type in ENCODER_FAMILIES:
        raise UnsupportedError(f"{checkpoint.config.source}: {checkpoint.model_type} generates no text; use dlc.embed")
    if family is None:
        raise UnsupportedError(
            f"{checkpoint.config.source}: model_type {checkpoint.model_type!r} is not supported; supported: "
            f"{', '.join(FAMILIES)}"
        )
    decoder = family(checkpoint.config, checkpoint.weights)
    checkpoint.config.require_all_read()
    checkpoint.weights.require_all_read()
    return decoder
