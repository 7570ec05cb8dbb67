"""The programs of a language model: one for a single token, others for the tokens of a prompt or for tokens of several texts.

    step(tokens [R, T], count [R], position [R], slot [R], settings of sampling [R], seen [S · V], caches)
    → next token [R], logits [R, V], seen, caches

A step has T tokens of each of R texts. For speculative decoding, R rows of one token are consecutive tokens of one text.
`count` of the tokens are valid, the rest is padding; a text of no tokens is padding too. `position` is the number of earlier
tokens of a text, and `slot` selects its part of the caches and of `seen`, the tokens that occurred. The caches and `seen` are
donated: they are written in place. All programs share the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import lax
from dlc.arrays import ShapeDtype, TensorInfo
from dlc.compiler import compile_specialization
from dlc.dialects import dl
from dlc.just_in_time.decorator import jit
from dlc.just_in_time.jit_function import JitFunction
from dlc.language_models.cached_attention import KvCache, num_cache_arrays
from dlc.language_models.checkpoints.checkpoint import Checkpoint
from dlc.language_models.decoder import Decoder
from dlc.language_models.families.registry import build_decoder
from dlc.language_models.layers import min_activation_bits
from dlc.language_models.sampling import Sampling
from dlc.language_models.step_sizes import CACHE_DTYPES, StepSizes
from dlc.language_models.token_choice import choose_token
from dlc.numpy.apply import apply, operand
from dlc.options import Options
from dlc.runtime.models.model import Model
from dlc.runtime.models.specialized_model import SpecializedModel
from dlc.shapes.dims import Dim
from dlc.weights import WeightStore

_TEXTS_SYMBOL, _TOKENS_SYMBOL = "R", "T"


def compile_steps(
    checkpoint: Checkpoint, sizes: StepSizes, target: str, options: Options, progress: Callable[[str], None]
) -> Model:
    """Compile all programs of a checkpoint to one model, which selects one by the shape of the tokens.

    Raises what `build_decoder` raises.
    """
    decoder = build_decoder(checkpoint)
    step = _step_function(decoder, target, sizes)
    shared_weights, programs = WeightStore(), list[Model]()
    # The model is cached as a whole.
    options = replace(options, cache=False)
    for texts, tokens in sizes.programs:
        progress(f"compiling the program for {_describe(texts, tokens)}")
        lowered = step.lower(**_example_inputs(decoder, sizes, texts, tokens))
        compiled = compile_specialization(lowered.program, target, options, {}, shared_weights)
        assert compiled is not None, "no guards exclude static sizes"
        programs.append(compiled.program)
    num_state_arrays = 1 + num_cache_arrays(CACHE_DTYPES[sizes.cache_dtype]) * len(decoder.layers)
    per_text, state = programs[0].inputs[1:-num_state_arrays], programs[0].inputs[-num_state_arrays:]
    texts, tokens = Dim.symbol(_TEXTS_SYMBOL), Dim.symbol(_TOKENS_SYMBOL)
    inputs = (
        TensorInfo(programs[0].inputs[0].name, (texts, tokens), programs[0].inputs[0].dtype),
        *(TensorInfo(info.name, (texts,), info.dtype) for info in per_text),
        *state,
    )
    results = (TensorInfo(info.name, (texts, *info.shape[1:]), info.dtype) for info in programs[0].outputs[:2])
    outputs = (*results, *programs[0].outputs[2:])
    specialized = SpecializedModel(checkpoint.name, inputs, outputs)
    for program in programs:
        specialized.add(program)
    model = specialized.model()
    model.num_threads, model.cpus = options.num_threads, options.cpus
    return model


def _describe(texts: int, tokens: int) -> str:
    if texts > 1:
        return f"a token of each of {texts} texts"
    return f"{tokens} token{'s' if tokens > 1 else ''}"


def _example_inputs(decoder: Decoder, sizes: StepSizes, texts: int, tokens: int) -> dict[str, Any]:
    rows = sizes.num_slots * sizes.context
    dtype = CACHE_DTYPES[sizes.cache_dtype]
    caches = [ShapeDtype((rows, decoder.kv_heads, decoder.head_size), dtype)] * 2
    caches += [ShapeDtype((rows, decoder.kv_heads), np.float32)] * (num_cache_arrays(dtype) - 2)
    settings = {name: ShapeDtype((texts,), array.dtype) for name, array in Sampling().arrays().items()}
    return {
        "tokens": ShapeDtype((texts, tokens), np.int32),
        "count": ShapeDtype((texts,), np.int32),
        "position": ShapeDtype((texts,), np.int64),
        "slot": ShapeDtype((texts,), np.int64),
        **settings,
        "seen": ShapeDtype((sizes.num_slots * decoder.vocabulary_size,), np.bool_),
        "caches": caches * len(decoder.layers),
    }


def _step_function(decoder: Decoder, target: str, sizes: StepSizes) -> JitFunction:
    names = [f.name for f in fields(Sampling)]
    vocabulary, num_slots = decoder.vocabulary_size, sizes.num_slots

    @jit(target=target, donate_argnames=("seen", "caches"), cache=False)
    def step(
        tokens: Any,
        count: Any,
        position: Any,
        slot: Any,
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
        texts, num_tokens = tokens.shape
        cache = KvCache(list(caches), slot, position, count, num_tokens, num_slots)
        with min_activation_bits(sizes.activation_bits(texts, num_tokens)):
            x = decoder.embed(dnp.reshape(tokens, (-1,)), cache.positions)
            for layer in decoder.layers:
                x = layer(x, cache)
            last = dnp.arange(texts) * num_tokens + dnp.maximum(count - 1, 0)
            logits = decoder.logits(x if num_tokens == 1 else dnp.take(x, last, 0, mode="clip"))
        # Padding gets an out-of-bounds index, which a scatter ignores.
        is_valid = dnp.arange(num_tokens) < count[:, None]
        indices = dnp.reshape(dnp.where(is_valid, slot[:, None] * vocabulary + tokens, num_slots * vocabulary), (-1,))
        updates = np.ones(texts * num_tokens, np.bool_)
        seen = apply(dl.ScatterRowsOp, operand(seen), operand(indices), operand(updates), mode="none")
        seen_rows = dnp.take(dnp.reshape(seen, (num_slots, vocabulary)), slot, 0, mode="clip")
        settings = dict(zip(names, values, strict=True))
        token = lax.map(lambda row: choose_token(*row), (logits, seen_rows, position + count, settings))
        return {"token": token, "logits": logits, "seen": seen, "caches": cache.arrays}

    return step
