"""Quantized matrices of Hugging Face folders: the layouts of GPTQ and AWQ.

A matrix [N, K] is stored as three or four tensors. Words have 32 bits; integers are packed from the lowest bits on.

    qweight    GPTQ: [K · bits / 32, N], packed along K     AWQ: [K, N / 8], packed along N in the order of _AWQ_COLUMNS
    qzeros     [groups, N · bits / 32], packed along N like AWQ's weights; GPTQ subtracts 1 from zero points
    scales     [groups, N]
    g_idx      GPTQ: the group of each input, [K]; without activation order, groups are consecutive inputs

Weights are `scale · (integer - zero)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from dlc.errors import ModelError, UnsupportedError
from dlc.language_models.quantized_matrix import QuantizedMatrix

_WORD_BITS = 32
_INT4, _UINT4 = np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)
# The position in a word of each of eight consecutive columns.
_AWQ_COLUMNS = [0, 4, 1, 5, 2, 6, 3, 7]
_SUFFIXES = (".qweight", ".qzeros", ".scales", ".g_idx")
# Options of quantization that do not affect the format.
_IGNORED_OPTIONS = {
    "quant_method", "damp_percent", "static_groups", "true_sequential", "sym", "desc_act", "group_size", "backend",
    "zero_point", "modules_to_not_convert", "do_fuse", "exllama_config", "dataset", "model_name_or_path", "fuse_max_seq_len",
    "model_file_base_name", "is_marlin_format", "quantizer", "meta", "pack_dtype", "lm_head", "tokenizer", "use_exllama",
    "batch_size", "block_name_to_quantize", "cache_block_outputs", "max_input_length", "module_name_preceding_first_block",
    "modules_in_block_to_quantize", "pad_token_id", "use_cuda_fp16", "disable_exllama",
}  # fmt: skip


@dataclass(frozen=True)
class PackedLayout:
    """The layout of the quantized matrices of a folder.

    Attributes:
        bits: The size of an integer.
        zero_offset: Added to stored zero points, modulo 2^bits.
        is_awq: The layout is AWQ's.
        source: The file of the options, for messages.
        group: The number of consecutive inputs that share a scale; None if the file does not tell, or if all of them do.
    """

    bits: int
    zero_offset: int
    is_awq: bool
    source: str
    group: int | None = None

    @staticmethod
    def of(options: object, source: str) -> PackedLayout:
        """Read the option quantization_config. Raises UnsupportedError for other methods and unknown options."""
        given = cast("dict[str, Any]", options) if isinstance(options, dict) else {"quant_method": options}
        method, bits = given.get("quant_method", "unknown"), given.get("bits", given.get("w_bit", 4))
        if method not in ("gptq", "awq"):
            raise UnsupportedError(
                f"{source}: quantization_config.quant_method = {method!r:.60}; expected 'gptq' or 'awq'; or use a GGUF file"
            )
        choices: dict[str, tuple[object, ...]] = {"bits": (4,) if method == "awq" else (4, 8), "w_bit": (4,)}
        choices |= {"checkpoint_format": ("gptq", "gptq_v2"), "version": ("gemm",), "format": ("gemm", "gptq", "gptq_v2")}
        for name, value in given.items():
            if name not in choices and name not in _IGNORED_OPTIONS and value not in (None, {}, []):
                raise UnsupportedError(f"{source}: quantization_config.{name} = {value!r:.60} is not supported")
            comparable = value.lower() if isinstance(value, str) else value
            if name in choices and value is not None and comparable not in choices[name]:
                expected = ", ".join(map(repr, choices[name]))
                raise UnsupportedError(f"{source}: quantization_config.{name} = {value!r:.60}; expected {expected}")
        group: object = given.get("group_size")
        if not isinstance(bits, int) or not (group is None or (isinstance(group, int) and (group > 0 or group == -1))):
            raise ModelError(
                f"{source}: quantization_config: bits = {bits!r:.60}, group_size = {group!r:.60}; expected integers"
            )
        is_v2 = "gptq_v2" in (given.get("checkpoint_format"), given.get("format"))
        return PackedLayout(bits, 0 if is_v2 or method == "awq" else 1, method == "awq", source, None if group == -1 else group)

    def matrices(
        self, tensors: Mapping[str, NDArray[Any]]
    ) -> tuple[dict[str, NDArray[Any]], dict[str, tuple[tuple[int, ...], Callable[[], QuantizedMatrix]]]]:
        """Return the tensors that are not packed, and the shape [N, K] and a reader of each packed matrix `….weight`.

        Raises ModelError for missing tensors and contradictory shapes.
        """
        stems = [name.removesuffix(".qweight") for name in tensors if name.endswith(".qweight")]
        packed = {stem: {s: t for s in _SUFFIXES if (t := tensors.get(f"{stem}{s}")) is not None} for stem in stems}
        names = {f"{stem}{suffix}" for stem, parts in packed.items() for suffix in parts}
        others = {name: tensor for name, tensor in tensors.items() if name not in names}
        return others, {
            f"{stem}.weight": (self._shape(stem, parts), partial(self._read, stem, parts)) for stem, parts in packed.items()
        }

    def _shape(self, stem: str, parts: Mapping[str, NDArray[Any]]) -> tuple[int, int]:
        """Return [N, K], and check the shapes and dtypes of the tensors."""
        per_word, words, scales = _WORD_BITS // self.bits, parts[".qweight"].shape, parts.get(".scales")
        first, last = (words[0], words[-1]) if words else (0, 0)
        k, n = (first, last * per_word) if self.is_awq else (first * per_word, last)
        groups = scales.shape[0] if scales is not None and scales.ndim == 2 else 0
        expected = {".qweight": (first, last), ".qzeros": (groups, n // per_word), ".scales": (groups, n)}
        expected |= {".g_idx": (k,)} if ".g_idx" in parts else {}
        shapes = {suffix: part.shape for suffix, part in parts.items()}
        are_words = all(parts[s].dtype == np.int32 for s in (".qweight", ".qzeros", ".g_idx") if s in parts)
        if shapes != expected or not groups or k % groups or n % per_word or not are_words:
            given = ", ".join(f"{s[1:]} {part.dtype}{list(part.shape)}" for s, part in parts.items())
            wanted = ", ".join(f"{s[1:]} {list(shape)}" for s, shape in expected.items())
            raise ModelError(
                f"{self.source}: {stem}: {given}; expected {self.bits}-bit integers in int32 words: {wanted}, with a "
                "number of inputs that the number of groups divides"
            )
        if self.group is not None and groups > 1 and k != groups * self.group:
            raise UnsupportedError(
                f"{self.source}: {stem}: {groups} groups of {k} inputs with group_size = {self.group}; "
                "groups of different sizes are not supported"
            )
        return n, k

    def _read(self, stem: str, parts: Mapping[str, NDArray[Any]]) -> QuantizedMatrix:
        _, k = self._shape(stem, parts)
        scale = np.ascontiguousarray(parts[".scales"].astype(np.float32).T)
        # Zero point 0 is stored as the largest integer if the layout subtracts 1.
        zero = (self._unpack(parts[".qzeros"]).T.astype(np.int32) + self.zero_offset) % (1 << self.bits)
        integers = self._unpack(parts[".qweight"]).T if self.is_awq else self._unpack(parts[".qweight"].T)
        order = self._input_order(stem, parts.get(".g_idx"), k, scale.shape[1])
        integers = np.ascontiguousarray(integers if order is None else integers[:, order])
        midpoint = 1 << (self.bits - 1)
        if (zero == midpoint).all():
            signed = (integers.astype(np.int16) - midpoint).astype(np.int8)
            return QuantizedMatrix(signed.astype(_INT4) if self.bits == 4 else signed, scale, input_order=order)
        return QuantizedMatrix(
            integers.astype(_UINT4) if self.bits == 4 else integers,
            scale,
            np.ascontiguousarray(zero, np.float32),
            input_order=order,
        )

    def _unpack(self, words: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the integers of words […, n] in the order of the matrix, as […, n · 32 / bits]."""
        shifts = np.arange(0, _WORD_BITS, self.bits, dtype=np.uint32)
        shifts = shifts[_AWQ_COLUMNS] if self.is_awq else shifts
        fields = (np.ascontiguousarray(words).view(np.uint32)[..., None] >> shifts) & np.uint32((1 << self.bits) - 1)
        return fields.astype(np.uint8).reshape(*words.shape[:-1], -1)

    def _input_order(self, stem: str, groups: NDArray[Any] | None, k: int, num_groups: int) -> NDArray[np.int64] | None:
        """Return the order of inputs in which each group is consecutive; None if the stored order is one."""
        consecutive = np.arange(k) // (k // num_groups)
        if groups is None or np.array_equal(groups, consecutive):
            return None
        order = np.argsort(groups, kind="stable")
        if not np.array_equal(groups[order], consecutive):
            raise UnsupportedError(f"{self.source}: {stem}.g_idx: groups of different sizes are not supported")
        return order.astype(np.int64)
