"""A model file with other numbers in its initialisers, and nothing else changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

from dlc.errors import DlcError
from dlc.files.whole_files import written_whole
from dlc.frontend.onnx.graph import ModelFile
from dlc.frontend.onnx.tensors import TensorReader

_TYPED = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


def write_tuned(file: ModelFile, arrays: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Writes the model to `path` with these arrays in its initialisers; external data becomes part of the file.

    The file is either whole or what it was before. Raises DlcError when it cannot be written.
    """
    model, reader = ModelProto(), TensorReader(file.folder)
    model.CopyFrom(file.proto)
    for tensor in model.graph.initializer:
        if tensor.name in arrays:
            _fill(tensor, np.asarray(arrays[tensor.name]))
        elif tensor.data_location == TensorProto.EXTERNAL:
            _fill(tensor, reader.read(tensor, f"initialiser '{tensor.name}'"))
    try:
        data = model.SerializeToString()
    except ValueError as error:
        raise DlcError(f"{path}: the model is larger than the 2 GiB that an ONNX file holds: {error}") from error
    with written_whole(path) as out:
        out.write(data)


def _fill(tensor: TensorProto, array: NDArray[Any]) -> None:
    for field in (*_TYPED, "external_data", "data_location"):
        tensor.ClearField(field)
    tensor.raw_data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
