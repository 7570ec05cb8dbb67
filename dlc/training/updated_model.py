"""Write a model file with updated initializers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

from dlc.errors import DlcError
from dlc.files.atomic_writes import atomic_write
from dlc.frontend.onnx.graph import ModelFile
from dlc.frontend.onnx.tensors import TensorReader

_TYPED_DATA_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


def write_updated_model(file: ModelFile, arrays: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Write the model to `path` with these arrays as initializers; external data is stored in the file.

    The file is written atomically. Raises DlcError if it cannot be written.
    """
    model, reader = ModelProto(), TensorReader(file.folder)
    model.CopyFrom(file.proto)
    for tensor in model.graph.initializer:
        if tensor.name in arrays:
            _fill(tensor, np.asarray(arrays[tensor.name]))
        elif tensor.data_location == TensorProto.EXTERNAL:
            _fill(tensor, reader.read(tensor, f"initializer '{tensor.name}'"))
    try:
        data = model.SerializeToString()
    except ValueError as error:
        raise DlcError(f"{path}: the model exceeds the 2 GiB limit of an ONNX file: {error}") from error
    with atomic_write(path) as out:
        out.write(data)


def _fill(tensor: TensorProto, array: NDArray[Any]) -> None:
    for field in (*_TYPED_DATA_FIELDS, "external_data", "data_location"):
        tensor.ClearField(field)
    tensor.raw_data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
