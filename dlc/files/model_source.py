"""Model arguments: a path, bytes, a file open for reading, or a protobuf message."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from dlc.errors import ModelError

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview[int] | IO[bytes]"


def path_or_bytes(model: object) -> Path | bytes:
    """Return the path of a model, or its content for bytes, an open file, or an object such as onnx's ModelProto.

    Raises ModelError for an unsupported object, and for a file that cannot be read.
    """
    if isinstance(model, str | os.PathLike):
        return Path(os.fsdecode(cast("str | os.PathLike[str]", model)))
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(cast("memoryview[int]", model))
    value = cast(Any, model)
    if hasattr(value, "SerializeToString"):
        try:
            return value.SerializeToString()
        except ValueError as error:  # Protobuf messages are limited to two gigabytes.
            raise ModelError(
                f"the model cannot be serialized: {error}; save it with external data and pass its path"
            ) from error
    if not hasattr(value, "read"):
        got = type(model).__name__
        raise ModelError(f"expected a model as a path, bytes, a file open for reading or onnx's ModelProto, got {got}")
    try:
        content = value.read()
    except (OSError, ValueError) as error:
        raise ModelError(f"{value!r}: cannot be read: {error}") from error
    if not isinstance(content, bytes):
        raise ModelError(f"{value!r}: the file is open in text mode; open it with mode 'rb'")
    return content
