"""The program of an encoder: token ids [L] and the number of tokens of each text [B] → vectors [B, size]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import ragged
from dlc.arrays import ShapeDtype
from dlc.just_in_time.decorator import jit
from dlc.language_models.checkpoints.checkpoint import Checkpoint
from dlc.language_models.families.registry import build_encoder
from dlc.language_models.pooling import Pooling
from dlc.options import Options
from dlc.ragged import Ragged
from dlc.runtime.models.model import Model

# The reductions by the name of the pooling.
_REDUCTIONS: Mapping[str, Callable[[Ragged], Any]] = {
    "mean": ragged.mean,
    "cls": ragged.first,
    "last": ragged.last,
    "max": ragged.max,
}
# Example sizes for tracing; the program has symbolic sizes.
_EXAMPLE_TOKENS, _EXAMPLE_TEXTS = 64, 4
_DYNAMIC_SIZES = {"texts.values": {0: "L:1..1048576"}, "texts.lengths": {0: "B:1..1048576"}}


def compile_encoder(checkpoint: Checkpoint, pooling: Pooling, target: str, options: Options) -> Model:
    """Compile the encoder of a checkpoint with a pooling. Raises what `build_encoder` raises."""
    encode = build_encoder(checkpoint)

    @jit(target=target, dynamic=_DYNAMIC_SIZES, num_threads=options.num_threads)
    def embed(texts: Ragged) -> Any:
        return _pool(pooling, encode(texts))

    example = Ragged(ShapeDtype((_EXAMPLE_TOKENS,), np.int32), ShapeDtype((_EXAMPLE_TEXTS,), np.int64))
    # The model is cached as a whole.
    return replace(embed.lower(example), options=replace(options, cache=False)).compile()


def _pool(pooling: Pooling, x: Ragged) -> Any:
    """Return the vectors of texts, [B, D]."""
    y = _REDUCTIONS[pooling.kind](x)
    # 1e-12 as in torch.nn.functional.normalize: zero vectors stay zero.
    return y / dnp.maximum(dnp.sqrt(dnp.sum(y * y, -1, keepdims=True)), 1e-12) if pooling.normalize else y
