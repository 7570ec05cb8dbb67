"""Read tensors of a model file as NumPy arrays; sizes are checked against the available bytes before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from mmap import MADV_DONTNEED
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from onnx import SparseTensorProto, TensorProto

from dlc.arrays import aligned_empty
from dlc.errors import ModelError
from dlc.files.mapped_files import backing_file, copy_to_memory
from dlc.frontend.onnx.large_tensors import OWN_FILE_LOCATION, Content, open_content
from dlc.frontend.problems import NodeProblem
from dlc.weights import Array

_DTYPES: dict[int, np.dtype[Any]] = {
    TensorProto.FLOAT: np.dtype("<f4"), TensorProto.DOUBLE: np.dtype("<f8"), TensorProto.FLOAT16: np.dtype("<f2"),
    TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16), TensorProto.BOOL: np.dtype(np.bool_),
    TensorProto.INT8: np.dtype("<i1"), TensorProto.INT16: np.dtype("<i2"), TensorProto.INT32: np.dtype("<i4"),
    TensorProto.INT64: np.dtype("<i8"), TensorProto.UINT8: np.dtype("<u1"), TensorProto.UINT16: np.dtype("<u2"),
    TensorProto.UINT32: np.dtype("<u4"), TensorProto.UINT64: np.dtype("<u8"),
    TensorProto.FLOAT8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn), TensorProto.FLOAT8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    TensorProto.FLOAT8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
    TensorProto.FLOAT8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
    TensorProto.FLOAT8E8M0: np.dtype(ml_dtypes.float8_e8m0fnu),
    TensorProto.FLOAT4E2M1: np.dtype(ml_dtypes.float4_e2m1fn), TensorProto.INT4: np.dtype(ml_dtypes.int4),
    TensorProto.UINT4: np.dtype(ml_dtypes.uint4), TensorProto.INT2: np.dtype(ml_dtypes.int2),
    TensorProto.UINT2: np.dtype(ml_dtypes.uint2),
}  # fmt: skip
# Bits per element of the types whose elements are packed into bytes, the first in the lowest bits.
_PACKED_BITS: dict[int, int] = {
    TensorProto.FLOAT4E2M1: 4, TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.INT2: 2, TensorProto.UINT2: 2,
}  # fmt: skip

# A process may have about a thousand files open, and some exporters write a file per tensor: further files are copied into
# memory.
MAX_OPEN_FILES = 64
# Limits the dense size of a sparse tensor, which is independent of its size in the file.
_MAX_DENSE_ELEMENTS = 1 << 28


def dtype_of(data_type: int) -> np.dtype[Any]:
    """Return the NumPy dtype of an ONNX tensor type; raises NodeProblem for an unsupported one."""
    if data_type not in _DTYPES:
        is_valid = data_type in TensorProto.DataType.values()
        name = TensorProto.DataType.Name(TensorProto.DataType.ValueType(data_type)).lower() if is_valid else str(data_type)
        raise NodeProblem("dtype", f"tensors of type {name} are not supported")
    return _DTYPES[data_type]


def data_type_of(dtype: np.dtype[Any]) -> int:
    """Return the ONNX tensor type of a NumPy dtype."""
    return next(data_type for data_type, known_dtype in _DTYPES.items() if known_dtype == dtype)


class TensorReader:
    """Read the tensors of one model; external data only from files inside the model's `folder`.

    `content`: the contents of the model file with the large tensors. Data in mapped files is not copied.
    """

    def __init__(self, folder: Path | None, content: Content | None = None) -> None:
        self.folder = folder
        self._content = None if content is None else np.frombuffer(content, np.uint8)
        self._files: dict[Path, None] = {}
        self._open: dict[Path, Array] = {}

    @property
    def files(self) -> tuple[Path, ...]:
        """The external data files that were read."""
        return tuple(self._files)

    def release(self) -> None:
        """Release the physical memory of the mapped pages that were read."""
        for source in (self._content, *self._open.values()):
            if source is not None and (file := backing_file(source)) is not None:
                file.madvise(MADV_DONTNEED)

    def read(self, tensor: TensorProto, where: str) -> Array:
        """Return the array that `tensor` holds, copied at most once; an object array for a string tensor.

        Raises ModelError if its shape and its data disagree.
        """
        if any(d < 0 for d in tensor.dims):
            raise ModelError(f"{where}: negative size in the shape {list(tensor.dims)}")
        count = math.prod(tensor.dims)
        if tensor.data_type == TensorProto.STRING:
            _require_size(where, tensor, count, len(tensor.string_data), "elements")
            return np.asarray([decode_utf8(t, where) for t in tensor.string_data], object).reshape(tuple(tensor.dims))
        dtype = dtype_of(tensor.data_type)
        if tensor.data_type in _PACKED_BITS:
            flat = self._packed(tensor, dtype, count, where)
        else:
            flat = self._flat(tensor, dtype, count, where)
        return _reshape(flat, tensor.dims, where)

    def read_sparse(self, sparse: SparseTensorProto, where: str) -> Array:
        """Return the dense array of a sparse tensor.

        Raises ModelError if its values, indices and shape disagree, and NodeProblem if the dense array would be too large.
        """
        shape = tuple(sparse.dims)
        values, indices = self.read(sparse.values, where), self.read(sparse.indices, f"{where}, its indices")
        if any(d < 0 for d in shape) or values.ndim != 1 or indices.dtype != np.int64 or values.dtype == object:
            got = f"values of shape {list(values.shape)} and indices of {indices.dtype}, in the shape {list(shape)}"
            raise ModelError(f"{where}: expected a numeric vector and int64 indices, got {got}")
        if math.prod(shape) > _MAX_DENSE_ELEMENTS:
            raise NodeProblem(
                "value", f"a sparse tensor of {math.prod(shape)} elements; it is made dense, up to {_MAX_DENSE_ELEMENTS}"
            )
        # Indices of shape [k] are linear, of shape [k, rank] one per axis.
        sizes, rows = ((math.prod(shape),), indices[:, None]) if indices.ndim == 1 else (shape, indices)
        if rows.shape != (values.size, len(sizes)) or not ((rows >= 0) & (rows < np.array(sizes, np.int64))).all():
            got = f"{values.size} values at indices of shape {list(indices.shape)}"
            raise ModelError(f"{where}: {got} do not match or are out of range for the shape {list(shape)}")
        linear = np.zeros(values.size, np.int64)
        for column, size in zip(rows.T, sizes, strict=True):
            linear = linear * size + column
        if np.unique(linear).size < linear.size:
            raise ModelError(f"{where}: duplicate indices")
        dense = np.zeros(math.prod(shape), values.dtype)
        dense[linear] = values
        return _reshape(dense, shape, where)

    def _packed(self, tensor: TensorProto, dtype: np.dtype[Any], count: int, where: str) -> Array:
        """Unpack elements of less than a byte into a byte each."""
        width = _PACKED_BITS[tensor.data_type]
        bytes_ = self._flat(tensor, np.dtype(np.uint8), -(-count * width // 8), where)
        codes = (bytes_[:, None] >> np.arange(0, 8, width, dtype=np.uint8)).reshape(-1)[:count] & ((1 << width) - 1)
        return codes.view(dtype)

    def _flat(self, tensor: TensorProto, dtype: np.dtype[Any], count: int, where: str) -> Array:
        """Return `count` elements of a tensor in file order."""
        if tensor.data_location == TensorProto.EXTERNAL:
            flat = self._external(tensor, dtype, count, where)
        elif tensor.HasField("raw_data"):
            _require_size(where, tensor, count * dtype.itemsize, len(tensor.raw_data), "bytes")
            flat = np.frombuffer(tensor.raw_data, dtype)
        else:
            flat = _typed_data(tensor, dtype, count, where)
        return flat.view(np.uint8) != 0 if dtype == np.bool_ else flat

    def _external(self, tensor: TensorProto, dtype: np.dtype[Any], count: int, where: str) -> Array:
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")
        source, is_cached = self._source(location, where)
        try:
            offset = int(entries.get("offset", "0"))
            length = int(entries.get("length", str(count * dtype.itemsize)))
        except ValueError:
            raise ModelError(f"{where}: offset and length of external data must be integers, got {entries}") from None
        _require_size(where, tensor, count * dtype.itemsize, length, "bytes")
        if offset < 0 or length < 0 or offset + length > source.size:
            end = offset + length
            raise ModelError(f"{where}: external data needs bytes {offset} to {end} of '{location}', which has {source.size}")
        flat = source[offset : offset + length].view(dtype)
        if backing_file(flat) is not None:
            return flat if is_cached else copy_to_memory(flat)
        # A copy, because the slice would keep the whole file in memory, and programs need aligned data.
        copy = aligned_empty(flat.shape, dtype)
        copy[...] = flat
        return copy

    def _source(self, location: str, where: str) -> tuple[Array, bool]:
        """Return the contents of the file at a location, and whether it stays open. Raises ModelError if it cannot be read."""
        if location == OWN_FILE_LOCATION and self._content is not None:
            return self._content, True
        path = self._path(location, where)
        if path in self._open:
            return self._open[path], True
        try:
            source = np.frombuffer(open_content(path), np.uint8)
        except OSError as error:
            raise ModelError(f"{where}: external data '{location}' cannot be read: {error.strerror}") from error
        self._files[path] = None
        is_cached = len(self._open) < MAX_OPEN_FILES
        if is_cached:
            self._open[path] = source
        return source, is_cached

    def _path(self, location: str, where: str) -> Path:
        if self.folder is None:
            raise ModelError(f"{where}: its data is in the file '{location}'; give the model's path instead of its bytes")
        folder = self.folder.resolve()
        if "\0" in location:
            raise ModelError(f"{where}: external data {location!r} is not a file in the model's folder {folder}")
        try:
            path = (folder / location).resolve()
            is_file = path.is_file()
        except (OSError, RuntimeError) as error:  # RuntimeError is a loop of links
            reason = error.strerror if isinstance(error, OSError) else error
            raise ModelError(f"{where}: external data {location!r} in the model's folder: {reason}") from error
        # Resolved on both sides: neither `..`, an absolute path nor a link may lead out of the folder.
        if not location or not path.is_relative_to(folder):
            raise ModelError(f"{where}: external data '{location}' is outside the model's folder {folder}")
        if not is_file:
            raise ModelError(f"{where}: external data '{location}' is not a file in the model's folder {folder}")
        return path


def _typed_data(tensor: TensorProto, dtype: np.dtype[Any], count: int, where: str) -> Array:
    match tensor.data_type:
        case TensorProto.FLOAT:
            field = tensor.float_data
        case TensorProto.DOUBLE:
            field = tensor.double_data
        case TensorProto.INT64:
            field = tensor.int64_data
        case TensorProto.UINT32 | TensorProto.UINT64:
            field = tensor.uint64_data
        case _:
            field = tensor.int32_data
    _require_size(where, tensor, count, len(field), "elements")
    if dtype.itemsize <= 2 and dtype.kind not in "iub":
        # ONNX stores their bit patterns.
        return np.asarray(field, np.int32).astype(f"u{dtype.itemsize}").view(dtype)
    values = np.asarray(field, np.int32) if field is tensor.int32_data else np.asarray(field, dtype)
    return values.astype(dtype, copy=False)


def decode_utf8(data: bytes | str, where: str) -> str:
    """Decode a string of a file. Raises ModelError for invalid UTF-8."""
    try:
        return data.decode() if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise ModelError(f"{where}: invalid UTF-8 in a string: {data!r}") from error


def _reshape(flat: Array, shape: Sequence[int], where: str) -> Array:
    """Reshape elements. Raises ModelError for a shape that NumPy does not support."""
    try:
        return flat.reshape(tuple(shape))
    except ValueError as error:
        raise ModelError(f"{where}: no array has the shape {list(shape)}: {error}") from error


def _require_size(where: str, tensor: TensorProto, expected: int, got: int, unit: str) -> None:
    if expected != got:
        raise ModelError(f"{where}: the shape {list(tensor.dims)} needs {expected} {unit} of data, the file holds {got}")
