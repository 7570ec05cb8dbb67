"""Checkpoints: the configuration and the weights of a language model, by the names that Hugging Face gives them.

Both record what a family reads, so that an option or a tensor that it does not know is an error and not a wrong result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from sys import float_info
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import ModelError, UnsupportedError
from dlc.language_models.quantized_matrix import QuantizedMatrix, Weight, make_read_only

_MAX_SIZE = 1 << 31
# Options that do not affect the logits: names, training, generation and storage.
_IGNORED_TEXT = """
architectures attention_dropout attention_probs_dropout_prob attn_pdrop auto_map bos_token_id cache_implementation
chunk_size_feed_forward classifier_dropout directionality dropout dtype embd_pdrop embedding_dropout eos_token_id
gradient_checkpointing hidden_dropout_prob id2label initializer_range is_decoder is_encoder_decoder label2id model_type n_ctx
original_max_position_embeddings output_attentions output_hidden_states output_router_logits pad_token_id pooler_fc_size
pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type pretraining_tp problem_type qa_dropout
reorder_and_upcast_attn resid_dropout resid_pdrop return_dict router_aux_loss_coef router_jitter_noise sep_token_id
seq_classif_dropout summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
task_specific_params tokenizer_class torch_dtype transformers_version unk_token_id use_cache _attn_implementation _name_or_path
"""
_IGNORED = frozenset(_IGNORED_TEXT.split())


def is_finite_number(value: Any) -> bool:
    """Return whether a value is a number that a float holds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float_info.max


@dataclass
class ModelConfig:
    """The options of a model, from `config.json` or the metadata of a GGUF file.

    Attributes:
        source: The file, for messages.
    """

    values: Mapping[str, Any]
    source: str
    _read: set[str] = field(default_factory=set[str])

    def size(self, name: str, default: int | None = None) -> int:
        """Return a positive integer. Raises ModelError if it is none, or missing without a default."""
        return cast(int, self._value(name, default, lambda v: isinstance(v, int) and 0 < v < _MAX_SIZE, "a positive integer"))

    def optional_size(self, name: str) -> int | None:
        """Return a positive integer, or None if it is missing or null."""
        return None if self.get(name) is None else self.size(name)

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number. Raises ModelError if it is none, or missing without a default."""
        return float(self._value(name, default, is_finite_number, "a number"))

    def optional_number(self, name: str) -> float | None:
        """Return a number, or None if it is missing or null."""
        return None if self.get(name) is None else self.number(name)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean; null is the default."""
        return self._value(name, default, lambda v: isinstance(v, bool), "true or false")

    def choice(self, name: str, choices: Collection[Any], default: Any = None) -> Any:
        """Return an option that is one of `choices`. Raises UnsupportedError for another one."""
        value = self.get(name)
        value = default if value is None else value
        # Values of files may be unhashable.
        if not any(value == choice for choice in choices):
            expected = ", ".join(map(repr, choices))
            raise UnsupportedError(f"{self.source}: option {name} = {value!r} is not supported; expected {expected}")
        return value

    def get(self, name: str) -> Any:
        """Return an option of any type, or None."""
        self._read.add(name)
        return self.values.get(name)

    def sequence(self, name: str) -> list[Any]:
        """Return a list; null is an empty list. Raises ModelError for another type."""
        return self._value(name, [], lambda v: isinstance(v, list), "a list")

    def error(self, problem: str) -> ModelError:
        """Return an error about the options."""
        return ModelError(f"{self.source}: {problem}")

    def require_all_read(self) -> None:
        """Raise UnsupportedError for options that the family does not know."""
        unknown = {n: v for n, v in self.values.items() if n not in self._read and n not in _IGNORED and v is not None}
        if unknown:
            listed = [f"{name} = {value!r:.60}" for name, value in sorted(unknown.items())]
            raise UnsupportedError(f"{self.source}: options that are not supported: {', '.join(listed)}", listed)

    def _value(self, name: str, default: Any, is_valid: Callable[[Any], bool], expected: str) -> Any:
        value = self.get(name)
        if value is None and default is not None:
            return default
        if not is_valid(value) or (isinstance(value, bool) and "true" not in expected):
            raise ModelError(f"{self.source}: option {name} = {value!r:.60}; expected {expected}")
        return value


@dataclass
class ModelWeights:
    """The tensors of a model by name; `read` decodes one, which `shapes` describes.

    Attributes:
        source: The file, for messages.
        shapes: The shape of each tensor.
        ignored: Tensors that are not weights.
    """

    source: str
    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[[str], Weight]
    ignored: Callable[[str], bool] = lambda name: False
    _read: set[str] = field(default_factory=set[str])

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def weight(self, name: str, *shape: int) -> Weight:
        """Return a tensor, quantized or as floats; its arrays are read-only. Raises ModelError unless it has this shape."""
        self._read.add(name)
        if name not in self.shapes:
            raise ModelError(f"{self.source}: the tensor {name!r} is missing")
        if self.shapes[name] != shape:
            raise ModelError(f"{self.source}: tensor {name!r} has shape {self.shapes[name]}; expected {shape} from the options")
        return make_read_only(self.read(name))

    def optional(self, name: str, *shape: int) -> Any:
        """Return a tensor of floats, or None if it is missing."""
        return self.vector(name, *shape) if name in self.shapes else None

    def vector(self, name: str, *shape: int) -> NDArray[Any]:
        """Return a tensor as f32. Raises ModelError unless it has this shape."""
        weight = self.weight(name, *shape)
        return weight.dequantize() if isinstance(weight, QuantizedMatrix) else weight.astype(np.float32)

    def ignore(self, *prefixes: str) -> None:
        """Mark the tensors whose names start with a prefix as read: the family does not use them."""
        self._read.update(name for name in self.shapes if name.startswith(prefixes))

    def require_all_read(self) -> None:
        """Raise UnsupportedError for tensors that the family does not know."""
        unknown = sorted(n for n in self.shapes if n not in self._read and not self.ignored(n))
        if unknown:
            more = f" and {len(unknown) - 8} more" if len(unknown) > 8 else ""
            raise UnsupportedError(f"{self.source}: tensors that are not supported: {', '.join(unknown[:8])}{more}", unknown)


def split_weights(weights: ModelWeights, parts: Mapping[str, Mapping[str, int]], inputs: int) -> ModelWeights:
    """Return the weights with some matrices [rows, inputs] split into blocks of consecutive rows.

    `parts` maps the name of a matrix to the names of its blocks and their numbers of rows. Raises ModelError for another shape.
    """
    shapes, sources = dict(weights.shapes), dict[str, Callable[[], Weight]]()
    for name, blocks in parts.items():
        expected, shape = (sum(blocks.values()), inputs), shapes.pop(name, None)
        if shape != expected:
            raise ModelError(f"{weights.source}: tensor {name!r} has shape {shape}; expected {expected} from the options")
        start = 0
        for block, rows in blocks.items():
            shapes[block] = (rows, inputs)
            sources[block] = partial(_rows, weights, name, expected, slice(start, start + rows))
            start += rows

    def read(name: str) -> Weight:
        return sources[name]() if name in sources else weights.read(name)

    return replace(weights, shapes=shapes, read=read)


def _rows(weights: ModelWeights, name: str, shape: tuple[int, ...], selected: slice) -> Weight:
    weight = weights.weight(name, *shape)
    return weight.rows(selected) if isinstance(weight, QuantizedMatrix) else weight[selected]


@dataclass(frozen=True)
class Checkpoint:
    """A model as it is stored.

    Attributes:
        name: A name for messages and reports.
        model_type: The family, as Hugging Face calls it.
        files: The files that it was read from.
        tokenizer: The vocabulary: the metadata of a GGUF file, or the path of a folder.
    """

    name: str
    model_type: str
    config: ModelConfig
    weights: ModelWeights
    files: tuple[Any, ...]
    tokenizer: Any
