"""What people give where a model is asked for: a path, the bytes of a file, or a file that is open for reading."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from dlc.errors import ModelError

ModelSource: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview[int] | IO[bytes]"


def path_or_bytes(model: object) -> Path | bytes:
    """The path of a model, or what its file holds; a message that knows how to serialise itself, onnx's ModelProto, is that.

    Raises ModelError for what is no model, and for a file that cannot be read.
    """
    if isinstance(model, str | os.PathLike):
        return Path(os.fsdecode(cast("str | os.PathLike[str]", model)))
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(cast("memoryview[int]", model))
    value = cast(Any, model)
    if hasattr(value, "SerializeToString"):
        try:
            return value.SerializeToString()
        except ValueError as error:  # the most that protobuf writes are two gigabytes
            raise ModelError(
                f"a model that cannot be serialised: {error}; save it with external data, give its path"
            ) from error
    if not hasattr(value, "read"):
        got = type(model).__name__
        raise ModelError(f"expected a model as a path, bytes, a file open for reading or onnx's ModelProto, got {got}")
    try:
        content = value.read()
    except (OSError, ValueError) as error:
        raise ModelError(f"{value!r}: cannot be read: {error}") from error
    if not isinstance(content, bytes):
        raise ModelError(f"{value!r}: a file of text; open it with mode 'rb'")
    return content
