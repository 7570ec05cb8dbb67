"""Tensors of a model file as NumPy arrays: sizes are checked against the bytes that exist before anything is made."""

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
from dlc.files.mapped_files import file_of, in_memory
from dlc.frontend.onnx.large_tensors import INSIDE, Content, content_of
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
# Types of which several elements share a byte in a file, the first in its lowest bits, and their bits.
_PACKED: dict[int, int] = {
    TensorProto.FLOAT4E2M1: 4, TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.INT2: 2, TensorProto.UINT2: 2,
}  # fmt: skip

# A process may have about a thousand files open, and exporters write a file for each tensor: those of more files than these are
# read at once.
MOST_OPEN = 64
# Elements of a sparse tensor, whose size in the file says nothing of its size in memory.
_MOST_DENSE = 1 << 28


def dtype_of(data_type: int) -> np.dtype[Any]:
    """The NumPy dtype of an ONNX tensor type; raises NodeProblem for one that dlc has none for."""
    if data_type not in _DTYPES:
        known = data_type in TensorProto.DataType.values()
        name = TensorProto.DataType.Name(TensorProto.DataType.ValueType(data_type)).lower() if known else str(data_type)
        raise NodeProblem("dtype", f"tensors of type {name} are not supported")
    return _DTYPES[data_type]


def data_type_of(dtype: np.dtype[Any]) -> int:
    """The ONNX tensor type of a NumPy dtype."""
    return next(data_type for data_type, known in _DTYPES.items() if known == dtype)


class TensorReader:
    """Reads the tensors of one model; external data only from files inside the model's `folder`.

    `content`: what the model's own file holds, where large tensors are. What lies in a mapped file stays there.
    """

    def __init__(self, folder: Path | None, content: Content | None = None) -> None:
        self.folder = folder
        self._content = None if content is None else np.frombuffer(content, np.uint8)
        self._files: dict[Path, None] = {}
        self._open: dict[Path, Array] = {}

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of external data that were read."""
        return tuple(self._files)

    def release(self) -> None:
        """Gives back the memory of what was looked at in mapped files."""
        for source in (self._content, *self._open.values()):
            if source is not None and (file := file_of(source)) is not None:
                file.madvise(MADV_DONTNEED)

    def read(self, tensor: TensorProto, place: str) -> Array:
        """The array that `tensor` holds, copied at most once; of strings if it holds text.

        Raises ModelError when its sizes and its data disagree.
        """
        if any(d < 0 for d in tensor.dims):
            raise ModelError(f"{place}: negative size in the shape {list(tensor.dims)}")
        count = math.prod(tensor.dims)
        if tensor.data_type == TensorProto.STRING:
            _expect(place, tensor, count, len(tensor.string_data), "elements")
            return np.asarray([decoded(t, place) for t in tensor.string_data], object).reshape(tuple(tensor.dims))
        dtype = dtype_of(tensor.data_type)
        if tensor.data_type in _PACKED:
            flat = self._packed(tensor, dtype, count, place)
        else:
            flat = self._flat(tensor, dtype, count, place)
        return _shaped(flat, tensor.dims, place)

    def read_sparse(self, sparse: SparseTensorProto, place: str) -> Array:
        """The array with the values of a sparse tensor at their places, and zeros elsewhere.

        Raises ModelError when its values, places and sizes disagree, and NodeProblem for one of more elements than a file of
        weights would have.
        """
        shape = tuple(sparse.dims)
        values, indices = self.read(sparse.values, place), self.read(sparse.indices, f"{place}, its indices")
        if any(d < 0 for d in shape) or values.ndim != 1 or indices.dtype != np.int64 or values.dtype == object:
            got = f"values of shape {list(values.shape)} and indices of {indices.dtype}, in the shape {list(shape)}"
            raise ModelError(f"{place}: expected a vector of numbers and indices of int64, got {got}")
        if math.prod(shape) > _MOST_DENSE:
            raise NodeProblem("value", f"a sparse tensor of {math.prod(shape)} elements; it is made dense, up to {_MOST_DENSE}")
        # [k] are places in the whole, [k, rank] places along each axis.
        sizes, rows = ((math.prod(shape),), indices[:, None]) if indices.ndim == 1 else (shape, indices)
        if rows.shape != (values.size, len(sizes)) or not ((rows >= 0) & (rows < np.array(sizes, np.int64))).all():
            got = f"{values.size} values at indices of shape {list(indices.shape)}"
            raise ModelError(f"{place}: {got} that do not fit, or lie outside of {list(shape)}")
        places = np.zeros(values.size, np.int64)
        for column, size in zip(rows.T, sizes, strict=True):
            places = places * size + column
        if np.unique(places).size < places.size:
            raise ModelError(f"{place}: several values at one place")
        dense = np.zeros(math.prod(shape), values.dtype)
        dense[places] = values
        return _shaped(dense, shape, place)

    def _packed(self, tensor: TensorProto, dtype: np.dtype[Any], count: int, place: str) -> Array:
        """The elements of a type of which several share a byte, one in a byte of its own."""
        width = _PACKED[tensor.data_type]
        bytes_ = self._flat(tensor, np.dtype(np.uint8), -(-count * width // 8), place)
        codes = (bytes_[:, None] >> np.arange(0, 8, width, dtype=np.uint8)).reshape(-1)[:count] & ((1 << width) - 1)
        return codes.view(dtype)

    def _flat(self, tensor: TensorProto, dtype: np.dtype[Any], count: int, place: str) -> Array:
        """`count` elements of a tensor as they stand in the file."""
        if tensor.data_location == TensorProto.EXTERNAL:
            flat = self._external(tensor, dtype, count, place)
        elif tensor.HasField("raw_data"):
            _expect(place, tensor, count * dtype.itemsize, len(tensor.raw_data), "bytes")
            flat = np.frombuffer(tensor.raw_data, dtype)
        else:
            flat = _typed_data(tensor, dtype, count, place)
        return flat.view(np.uint8) != 0 if dtype == np.bool_ else flat

    def _external(self, tensor: TensorProto, dtype: np.dtype[Any], count: int, place: str) -> Array:
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")
        source, stays = self._source(location, place)
        try:
            offset = int(entries.get("offset", "0"))
            length = int(entries.get("length", str(count * dtype.itemsize)))
        except ValueError:
            raise ModelError(f"{place}: offset and length of external data must be integers, got {entries}") from None
        _expect(place, tensor, count * dtype.itemsize, length, "bytes")
        if offset < 0 or length < 0 or offset + length > source.size:
            end = offset + length
            raise ModelError(f"{place}: external data wants bytes {offset} to {end} of '{location}', which has {source.size}")
        flat = source[offset : offset + length].view(dtype)
        if file_of(flat) is not None:
            return flat if stays else in_memory(flat)
        # An array of its own: it would hold all of the file, and programs take what is aligned.
        own = aligned_empty(flat.shape, dtype)
        own[...] = flat
        return own

    def _source(self, location: str, place: str) -> tuple[Array, bool]:
        """What the file at a location holds, and whether it stays open. Raises ModelError when it cannot be read."""
        if location == INSIDE and self._content is not None:
            return self._content, True
        path = self._path(location, place)
        if path in self._open:
            return self._open[path], True
        try:
            source = np.frombuffer(content_of(path), np.uint8)
        except OSError as error:
            raise ModelError(f"{place}: external data '{location}' cannot be read: {error.strerror}") from error
        self._files[path] = None
        stays = len(self._open) < MOST_OPEN
        if stays:
            self._open[path] = source
        return source, stays

    def _path(self, location: str, place: str) -> Path:
        if self.folder is None:
            raise ModelError(f"{place}: its data is in the file '{location}'; give the model's path instead of its bytes")
        folder = self.folder.resolve()
        if "\0" in location:
            raise ModelError(f"{place}: external data {location!r} is no file in the model's folder {folder}")
        try:
            path = (folder / location).resolve()
            there = path.is_file()
        except (OSError, RuntimeError) as error:  # RuntimeError is a loop of links
            reason = error.strerror if isinstance(error, OSError) else error
            raise ModelError(f"{place}: external data {location!r} in the model's folder: {reason}") from error
        # Resolved on both sides: neither `..`, an absolute path nor a link may lead out of the folder.
        if not location or not path.is_relative_to(folder):
            raise ModelError(f"{place}: external data '{location}' is outside the model's folder {folder}")
        if not there:
            raise ModelError(f"{place}: external data '{location}' is no file in the model's folder {folder}")
        return path


def _typed_data(tensor: TensorProto, dtype: np.dtype[Any], count: int, place: str) -> Array:
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
    _expect(place, tensor, count, len(field), "elements")
    if dtype.itemsize <= 2 and dtype.kind not in "iub":
        # These travel as their bits.
        return np.asarray(field, np.int32).astype(f"u{dtype.itemsize}").view(dtype)
    wide = np.asarray(field, np.int32) if field is tensor.int32_data else np.asarray(field, dtype)
    return wide.astype(dtype, copy=False)


def decoded(data: bytes | str, place: str) -> str:
    """Text of a file. Raises ModelError for bytes that are none."""
    try:
        return data.decode() if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise ModelError(f"{place}: text that is not UTF-8, which ONNX has: {data!r}") from error


def _shaped(flat: Array, shape: Sequence[int], place: str) -> Array:
    """Elements as an array. Raises ModelError for a shape that NumPy's arrays do not have."""
    try:
        return flat.reshape(tuple(shape))
    except ValueError as error:
        raise ModelError(f"{place}: no array has the shape {list(shape)}: {error}") from error


def _expect(place: str, tensor: TensorProto, expected: int, got: int, unit: str) -> None:
    if expected != got:
        raise ModelError(f"{place}: the shape {list(tensor.dims)} needs {expected} {unit} of data, the file holds {got}")
