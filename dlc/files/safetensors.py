"""Read and write safetensors files; tensors that are read are views of the mapped file.

The format is specified in https://huggingface.co/docs/safetensors: a length, a JSON header, and the bytes of the tensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from dlc.errors import ModelError, UnsupportedError
from dlc.files.atomic_writes import atomic_write
from dlc.files.mapped_files import MappedFile

_DTYPES: Mapping[str, Any] = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I64": np.int64, "I32": np.int32,
    "I16": np.int16, "I8": np.int8, "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8, "BOOL": np.bool_,
    "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
}  # fmt: skip
_DTYPE_NAMES: Mapping[np.dtype[Any], str] = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
_METADATA_NAME = "__metadata__"
_ALIGNMENT_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000
_MAX_RANK = 16


def read_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file by name. Raises ModelError for a malformed file, UnsupportedError for a dtype."""
    content = np.frombuffer(MappedFile.of_model(path), np.uint8)
    header_bytes = int.from_bytes(content[:8].tobytes(), "little")
    if len(content) < 8 or header_bytes > min(len(content) - 8, _MAX_HEADER_BYTES):
        raise ModelError(f"{path}: not a safetensors file, or truncated: a header of {header_bytes} bytes")
    try:
        header = json.loads(content[8 : 8 + header_bytes].tobytes())
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not a safetensors file: its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise ModelError(f"{path}: not a safetensors file: its header is not an object")
    entries = cast("dict[str, Any]", header)
    return {n: _tensor(path, n, entry, content[8 + header_bytes :]) for n, entry in entries.items() if n != _METADATA_NAME}


def write_safetensors(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write tensors to a file, which replaces an older one at the end.

    Raises UnsupportedError for a dtype without a name in the format and for the name of the metadata, and DlcError if the file
    cannot be written.
    """
    if _METADATA_NAME in tensors:
        raise UnsupportedError(f"safetensors files have no tensor named {_METADATA_NAME!r}; rename it")
    # Wide elements first: then all tensors are aligned.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header, offset = dict[str, Any](), 0
    for name, tensor in ordered:
        stop = offset + tensor.nbytes
        header[name] = {"dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape), "data_offsets": [offset, stop]}
        offset = stop
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    with atomic_write(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in ordered:
            file.write(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).data)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype in the format. Raises UnsupportedError for a dtype without one."""
    if dtype not in _DTYPE_NAMES:
        raise UnsupportedError(f"safetensors files have no dtype {dtype}; supported: {', '.join(map(str, _DTYPE_NAMES))}")
    return _DTYPE_NAMES[dtype]


def _tensor(path: Path, name: str, entry: Any, data: NDArray[np.uint8]) -> NDArray[Any]:
    try:
        dtype_name, shape, (start, stop) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: tensor {name!r} has no dtype, shape and data_offsets") from error
    if not isinstance(dtype_name, str) or dtype_name not in _DTYPES:
        raise UnsupportedError(f"{path}: tensor {name!r} has dtype {dtype_name}; supported: {', '.join(_DTYPES)}")
    integers = (start, stop, *shape)
    if not all(isinstance(n, int) and 0 <= n < 1 << 62 for n in integers) or len(shape) > _MAX_RANK:
        raise ModelError(f"{path}: tensor {name!r} has shape {shape} and data_offsets {entry['data_offsets']}")
    dtype = np.dtype(_DTYPES[dtype_name])
    if stop > len(data) or stop - start != prod(shape) * dtype.itemsize:
        raise ModelError(
            f"{path}: tensor {name!r} of shape {shape} and dtype {dtype_name} has bytes {start} to {stop} of {len(data)}; "
            "the file is truncated or damaged"
        )
    raw = data[start:stop]
    # Offsets need not be aligned to elements.
    aligned = raw if raw.ctypes.data % dtype.itemsize == 0 else raw.copy()
    return aligned.view(dtype).reshape(shape)
