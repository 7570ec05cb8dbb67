"""The contents of a TFLite file by the field numbers of the public schema (schema.fbs): graphs, tensors, operators, buffers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from dlc.dialects.dl.base import Array
from dlc.errors import ModelError, UnsupportedError
from dlc.frontend.tflite.flatbuffer import FileBytes, FlatbufferTable
from dlc.frontend.tflite.sparsity import TfliteSparsity, read_sparsity

IDENTIFIER = b"TFL3"
_VERSION = 3

# The builtin operators in the order of their codes.
_BUILTIN_NAMES = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED
HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU
RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM
EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV
SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE
BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE
SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT
REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE
ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL
REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL
PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND
HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS
RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD
UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC
STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS
STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE
STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH
STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD
STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER
STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT
STABLEHLO_CASE
"""
BUILTINS: Sequence[str] = _BUILTIN_NAMES.split()

# Element types by their codes: the NumPy dtype, or the name of an unsupported type.
_DTYPES: dict[int, np.dtype[Any]] = {
    0: np.dtype("<f4"), 1: np.dtype("<f2"), 2: np.dtype("<i4"), 3: np.dtype("u1"), 4: np.dtype("<i8"), 6: np.dtype(np.bool_),
    7: np.dtype("<i2"), 9: np.dtype("i1"), 10: np.dtype("<f8"), 12: np.dtype("<u8"), 15: np.dtype("<u4"), 16: np.dtype("<u2"),
    17: np.dtype(ml_dtypes.int4), 18: np.dtype(ml_dtypes.bfloat16), 19: np.dtype(ml_dtypes.int2),
    20: np.dtype(ml_dtypes.uint4),
}  # fmt: skip
_UNSUPPORTED_DTYPES = {
    5: "strings",
    8: "complex64",
    11: "complex128",
    13: "resources",
    14: "variants",
    21: "float8",
    22: "float8",
}
# Bits per element of packed types; the first element is in the lowest bits of a byte.
_PACKED_BITS = {17: 4, 19: 2, 20: 4}


@dataclass(frozen=True, eq=False)
class TfliteQuantization:
    """`real = scale · (stored - zero point)`, per tensor or per index of an axis."""

    scales: Array
    zero_points: Array
    axis: int

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TfliteQuantization)
            and np.array_equal(self.scales, other.scales)
            and np.array_equal(self.zero_points, other.zero_points)
            and (self.scales.size == 1 or self.axis == other.axis)
        )


@dataclass(frozen=True)
class TfliteTensor:
    """A tensor of a graph; dynamic sizes in `signature` are -1. `data` are the bytes of a constant."""

    name: str
    type: int
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    data: Array | None
    quantization: TfliteQuantization | None
    is_variable: bool
    sparsity: TfliteSparsity | None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype. Raises UnsupportedError for an unsupported element type."""
        if self.type not in _DTYPES:
            raise UnsupportedError(f"tensors of {_UNSUPPORTED_DTYPES.get(self.type, f'type {self.type}')} are not supported")
        return _DTYPES[self.type]

    def array(self) -> Array:
        """Return the elements of a constant, also of a sparse one. Raises ModelError if the data does not match the shape."""
        dtype, count, width = self.dtype, math.prod(self.shape), _PACKED_BITS.get(self.type)
        data = np.zeros(0, np.uint8) if self.data is None else self.data
        if self.sparsity is not None:
            if width is not None or data.size % dtype.itemsize:
                raise ModelError(f"tensor '{self.name}': {data.size} bytes of sparse elements of {dtype}")
            return self.sparsity.dense(data.view(dtype), self.shape, f"tensor '{self.name}'")
        needed = count * dtype.itemsize if width is None else -(-count * width // 8)
        if needed != data.size:
            raise ModelError(
                f"tensor '{self.name}': the shape {list(self.shape)} needs {needed} bytes of data, the file holds {data.size}"
            )
        if width is not None:
            codes = (data[:, None] >> np.arange(0, 8, width, dtype=np.uint8)).reshape(-1)[:count] & ((1 << width) - 1)
            flat = codes.view(dtype)
        else:
            flat = data != 0 if dtype == np.bool_ else data.view(dtype)
        try:
            return flat.reshape(self.shape)
        except ValueError as error:
            raise ModelError(f"tensor '{self.name}': no array has the shape {list(self.shape)}: {error}") from error


@dataclass(frozen=True)
class OptionStruct:
    """The options of a custom operator: a C struct of fields of four bytes, read like a table."""

    data: FileBytes

    def scalar(self, number: int, kind: str, default: Any = 0) -> Any:
        return self.data.scalar(kind, 4 * number)

    def integers(self, number: int) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True)
class TfliteOperator:
    """An operator: the indices of its input tensors, -1 for an omitted one, and output tensors; its options, if any."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: FlatbufferTable | OptionStruct | None


@dataclass(frozen=True)
class TfliteGraph:
    tensors: Sequence[TfliteTensor]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: Sequence[TfliteOperator]

    def label(self, operator: TfliteOperator) -> str:
        """Return the name of an operator for messages and locations: that of its first output."""
        return self.tensors[operator.outputs[0]].name if operator.outputs else operator.kind


@dataclass(frozen=True)
class TfliteFile:
    """A file: its graphs, the first of which is the model, and the tensor names of its signature."""

    name: str
    graphs: Sequence[TfliteGraph]
    input_names: Mapping[int, str]
    output_names: Mapping[int, str]

    @property
    def stem(self) -> str:
        return Path(self.name).stem


def is_tflite(data: bytes) -> bool:
    """Return whether bytes start like a TFLite file."""
    return data[4:8] == IDENTIFIER


def read_file(source: Path | bytes) -> TfliteFile:
    """Parse a file, given as its path or its bytes.

    Raises ModelError for a file that cannot be read, is not a TFLite file, or is inconsistent.
    """
    name = str(source) if isinstance(source, Path) else "model"
    try:
        data = source.read_bytes() if isinstance(source, Path) else source
    except OSError as error:
        raise ModelError(f"{name}: cannot be read: {error.strerror}") from error
    if not is_tflite(data):
        raise ModelError(f"{name}: not a TFLite model, or a truncated one ({len(data)} bytes)")
    return _file(FileBytes(data, name))


def operator_lines(source: Path | bytes) -> list[tuple[str, str]]:
    """Return the operators of a file as text, `y = CONV_2D(x, w, b)`, each with its name in locations."""
    lines: list[tuple[str, str]] = []
    for number, graph in enumerate(read_file(source).graphs):
        lines += [(f"graph {number}:", "")] if number else []
        for operator in graph.operators:
            outputs, inputs = (
                ", ".join(graph.tensors[k].name if k >= 0 else "none" for k in indices)
                for indices in (operator.outputs, operator.inputs)
            )
            lines.append((f"{outputs} = {operator.kind}({inputs})", graph.label(operator)))
    return lines


def _file(buffer: FileBytes) -> TfliteFile:
    root = buffer.root()
    if (version := root.scalar(0, "u32")) != _VERSION:
        raise ModelError(f"{buffer.name}: version {version} of the TFLite schema, expected {_VERSION}")
    kinds: list[str] = root.tables(1, _kind)
    data = root.tables(4, lambda table: _data(buffer, table))
    graphs = root.tables(2, lambda table: _graph(buffer.name, table, kinds, data))
    if not graphs or not graphs[0].outputs:
        raise ModelError(f"{buffer.name}: a TFLite file without a graph that has outputs")
    signatures = [s for s in root.tables(7, _signature) if s.graph == 0]
    # With several signatures the names would be ambiguous.
    names = signatures[0] if len(signatures) == 1 else _Signature(0, {}, {})
    return TfliteFile(buffer.name, graphs, names.inputs, names.outputs)


def _kind(table: FlatbufferTable) -> str:
    """Return the name of an operator code; a custom operator by its own name."""
    number: int = max(table.scalar(0, "i8"), table.scalar(3, "i32"))
    kind = BUILTINS[number] if 0 <= number < len(BUILTINS) else f"operator {number}"
    return f"CUSTOM {table.string(1)}" if kind == "CUSTOM" else kind


def _data(buffer: FileBytes, table: FlatbufferTable) -> Array | None:
    """Return the contents of a buffer; files above two gigabytes store them after all tables."""
    offset, size = table.scalar(1, "u64"), table.scalar(2, "u64")
    if offset > 1:
        buffer.require(offset, size)
        return np.frombuffer(buffer.data, np.uint8, size, offset)
    return table.array(0, "u1")


def _graph(name: str, table: FlatbufferTable, kinds: Sequence[str], data: Sequence[Array | None]) -> TfliteGraph:
    tensors = table.tables(0, lambda t: _tensor(name, t, data))
    operators = table.tables(3, lambda t: _operator(name, t, kinds))
    graph = TfliteGraph(tensors, table.integers(1), table.integers(2), operators)
    inputs = [k for op in operators for k in op.inputs if k != -1]
    for k in (*graph.inputs, *graph.outputs, *inputs, *(k for op in operators for k in op.outputs)):
        if not 0 <= k < len(tensors):
            raise ModelError(f"{name}: damaged: there is no tensor {k} in a graph of {len(tensors)}")
    return graph


def _tensor(name: str, table: FlatbufferTable, data: Sequence[Array | None]) -> TfliteTensor:
    label, shape = table.string(3), table.integers(0)
    buffer: int = table.scalar(2, "u32")
    if buffer >= len(data) > 0 or min(shape, default=0) < 0:
        raise ModelError(f"{name}: tensor '{label}': its shape {list(shape)} or its buffer index {buffer} is invalid")
    signature = table.integers(7)
    if len(signature) != len(shape):
        signature = shape
    return TfliteTensor(
        label,
        table.scalar(1, "i8"),
        shape,
        signature,
        data[buffer] if data else None,
        _quantization(f"{name}: tensor '{label}'", table.table(4), shape),
        table.scalar(5, "bool", False),
        None if (sparsity := table.table(6)) is None else read_sparsity(sparsity),
    )


def _quantization(where: str, table: FlatbufferTable | None, shape: tuple[int, ...]) -> TfliteQuantization | None:
    scales = None if table is None else table.array(2, "<f4")
    if table is None or scales is None or not scales.size:
        return None
    zero_points = table.array(3, "<i8")
    axis: int = table.scalar(6, "i32")
    zero_points = np.zeros(1, np.int64) if zero_points is None or not zero_points.size else zero_points
    sizes = {1, shape[axis] if 0 <= axis < len(shape) else 1}
    if not np.isfinite(scales).all() or {scales.size, zero_points.size} - sizes:
        raise ModelError(f"{where}: {scales.size} scales and {zero_points.size} zero points for axis {axis} of {list(shape)}")
    return TfliteQuantization(scales, zero_points, axis)


def _operator(name: str, table: FlatbufferTable, kinds: Sequence[str]) -> TfliteOperator:
    code: int = table.scalar(0, "u32")
    if code >= len(kinds):
        raise ModelError(f"{name}: damaged: operator code {code} of {len(kinds)}")
    # Newer operators store their options in a second union, custom operators in bytes.
    custom = table.array(5, "u1")
    struct = None if custom is None else OptionStruct(FileBytes(custom.tobytes(), f"{name}: options of {kinds[code]}"))
    return TfliteOperator(kinds[code], table.integers(1), table.integers(2), table.table(4) or table.table(12) or struct)


@dataclass(frozen=True)
class _Signature:
    """Names of the inputs and outputs of a graph."""

    graph: int
    inputs: Mapping[int, str]
    outputs: Mapping[int, str]


def _signature(table: FlatbufferTable) -> _Signature:
    return _Signature(table.scalar(4, "u32"), dict(table.tables(0, _tensor_name)), dict(table.tables(1, _tensor_name)))


def _tensor_name(table: FlatbufferTable) -> tuple[int, str]:
    return table.scalar(1, "u32"), table.string(0)
