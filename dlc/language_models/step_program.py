"""The programs of a language model: one for a single token, others for the tokens of a prompt, with the same weights.

    step(tokens [T], count, position, settings of sampling, seen [V], caches) → next token, logits [V], seen, caches

`count` tokens are valid, the rest is padding; `position` is the number of earlier tokens. The caches and `seen`, the tokens
that occurred, are donated: they are written in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc.arrays import ShapeDtype, TensorInfo
from dlc.compiler import compile_specialization
from dlc.dialects import dl
from dlc.just_in_time import JitFunction, jit
from dlc.language_models.cached_attention import KvCache
from dlc.language_models.decoder import Decoder
from dlc.language_models.layers import MAX_EXACT_ROWS
from dlc.language_models.sampling import Sampling, choose_token
from dlc.numpy.apply import apply, operand
from dlc.options import Options
from dlc.runtime.models.model import Model
from dlc.runtime.models.specialized_model import SpecializedModel
from dlc.shapes.dims import Dim
from dlc.target import Target
from dlc.weights import WeightStore

CACHE_DTYPES: Mapping[str, Any] = {"f32": np.float32, "f16": np.float16}
_TOKENS_SYMBOL = "T"


@dataclass(frozen=True)
class StepSizes:
    """The sizes of a compiled model.

    Attributes:
        context: The number of positions of the caches.
        prompt_tokens: The numbers of tokens of the programs for prompts, ascending.
    """

    context: int
    prompt_tokens: tuple[int, ...]
    cache_dtype: str = "f32"


def compile_steps(
    decoder: Decoder, sizes: StepSizes, name: str, target: str, options: Options, progress: Callable[[str], None]
) -> Model:
    """Compile all programs to one model, which selects one by the number of tokens."""
    step = _step_function(decoder, target)
    shared_weights, programs = WeightStore(), list[Model]()
    # The model is cached as a whole.
    options = replace(options, cache=False)
    for num_tokens in (1, *sizes.prompt_tokens):
        progress(f"compiling the program for {num_tokens} token{'s' if num_tokens > 1 else ''}")
        lowered = step.lower(**_example_inputs(decoder, sizes, num_tokens))
        compiled = compile_specialization(lowered.program, target, options, {}, shared_weights)
        assert compiled is not None, "no guards exclude static sizes"
        programs.append(compiled.program)
    inputs, outputs = programs[0].inputs, programs[0].outputs
    symbolic = (TensorInfo(inputs[0].name, (Dim.symbol(_TOKENS_SYMBOL),), inputs[0].dtype), *inputs[1:])
    specialized = SpecializedModel(name, symbolic, outputs)
    for program in programs:
        specialized.add(program)
    model = specialized.model()
    model.num_threads = options.num_threads
    return model


def prompt_tokens(target: Target) -> tuple[int, ...]:
    """Return the chunk sizes of the programs for prompts (prefill).

    If the target has byte dot products, long prompts are processed in larger chunks, whose rows are quantized to 8 bits.
    """
    return (MAX_EXACT_ROWS, 64) if "u8i8" in target.dot_products else (target.costs.max_packed_pair_rows,)


def _example_inputs(decoder: Decoder, sizes: StepSizes, num_tokens: int) -> dict[str, Any]:
    cache = ShapeDtype((sizes.context, decoder.kv_heads, decoder.head_size), CACHE_DTYPES[sizes.cache_dtype])
    return {
        "tokens": ShapeDtype((num_tokens,), np.int32),
        "count": ShapeDtype((), np.int32),
        "position": ShapeDtype((), np.int64),
        **Sampling().arrays(),
        "seen": ShapeDtype((decoder.vocabulary_size,), np.bool_),
        "caches": [cache] * (2 * len(decoder.layers)),
    }


def _step_function(decoder: Decoder, target: str) -> JitFunction:
    names = [f.name for f in fields(Sampling)]

    @jit(target=target, donate_argnames=("seen", "caches"), cache=False)
    def step(
        tokens: Any,
        count: Any,
        position: Any,
        temperature: Any,
        top_k: Any,
        top_p: Any,
        min_p: Any,
        repetition_penalty: Any,
        seed: Any,
        seen: Any,
        caches: list[Any],
    ) -> dict[str, Any]:
        values = (temperature, top_k, top_p, min_p, repetition_penalty, seed)
        num_tokens = tokens.shape[0]
        cache = KvCache(list(caches), position, num_tokens)
        x = decoder.embed(tokens, cache.positions)
        for layer in decoder.layers:
            x = layer(x, cache)
        last = x if num_tokens == 1 else dnp.take(x, dnp.reshape(count - 1, (1,)), 0, mode="clip")
        logits = dnp.reshape(decoder.logits(last), (decoder.vocabulary_size,))
        # Padding gets an out-of-bounds index, which a scatter ignores.
        valid = dnp.where(dnp.arange(num_tokens) < count, tokens, decoder.vocabulary_size)
        updates = np.ones(num_tokens, np.bool_)
        seen = apply(dl.ScatterRowsOp, operand(seen), operand(valid), operand(updates), mode="none")
        token = choose_token(logits, seen, position + count, dict(zip(names, values, strict=True)))
        return {"token": token, "logits": logits, "seen": seen, "caches": cache.arrays}

    return step
