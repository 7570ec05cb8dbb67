"""Requests and responses of the KServe v2 inference protocol: JSON, and JSON followed by binary tensors.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol, with the extension for binary tensors of
Triton Inference Server: after the JSON come the tensors with `binary_data_size`, in order, in row-major little-endian layout.
Requests are untrusted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.errors import DlcError, UnsupportedError
from dlc.value_types import OBJECT_DTYPE

_DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    **{f"{kind.upper()}{bits}": np.dtype(f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
# The Python types of JSON values for a dtype that is neither boolean nor an integer.
_FLOAT_TYPES = frozenset[type]((int, float))
_JSON_TYPES = {"b": frozenset[type]((bool,)), "i": frozenset[type]((int,)), "u": frozenset[type]((int,))}
_MAX_RANK = 32


class BadRequestError(DlcError):
    """A request does not follow the protocol, or does not fit the model."""


@dataclass(frozen=True)
class InferenceRequest:
    """A parsed request.

    Attributes:
        outputs: The requested outputs, each with whether it is returned as binary data; None: all.
        binary: Whether outputs are binary data by default.
        timeout: Seconds until which the request must have started, or None.
    """

    id: str | None
    inputs: Mapping[str, NDArray[Any]]
    outputs: Mapping[str, bool] | None
    binary: bool
    priority: int
    timeout: float | None


def datatype_of(dtype: np.dtype[Any]) -> str:
    """Return the protocol's name of a dtype. Raises UnsupportedError for a dtype that it does not have."""
    if dtype not in _NAMES:
        raise UnsupportedError(f"dtype {dtype} is not a datatype of the protocol; expected one of {', '.join(_DTYPES)}")
    return _NAMES[dtype]


def metadata(info: TensorInfo) -> dict[str, Any]:
    """Return the description of an input or output; symbolic dimensions are -1."""
    if info.dtype == OBJECT_DTYPE:
        raise UnsupportedError(f"{info}: only tensors of numbers can be served; remove other inputs and outputs")
    shape = [size if isinstance(size, int) else -1 for size in info.shape]
    return {"name": info.name, "datatype": datatype_of(info.dtype), "shape": shape}


def parse_request(body: bytes, json_bytes: int | None) -> InferenceRequest:
    """Parse the body of a request, whose first `json_bytes` are JSON (None: all). Raises BadRequestError."""
    if json_bytes is not None and not 0 <= json_bytes <= len(body):
        raise BadRequestError(
            f"Inference-Header-Content-Length {json_bytes}: expected at most the {len(body)} bytes of the body"
        )
    try:
        written = json.loads(body[:json_bytes])
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the request is not JSON: {error}") from error
    fields = _object(written, "the request")
    binary = memoryview(body)[len(body) if json_bytes is None else json_bytes :]
    inputs, start = dict[str, NDArray[Any]](), 0
    for entry in _list(fields.get("inputs"), "inputs"):
        tensor = _object(entry, "an input")
        name = _text(tensor.get("name"), "name of an input")
        if name in inputs:
            raise BadRequestError(f"input {name!r} occurs twice")
        inputs[name], start = _tensor(name, tensor, binary, start)
    if start != len(binary):
        raise BadRequestError(f"{len(binary) - start} bytes follow the binary data of the inputs; expected none")
    parameters = _object(fields.get("parameters", {}), "parameters")
    is_binary = parameters.get("binary_data_output") is True
    timeout = _integer(parameters.get("timeout", 0), "timeout")
    if timeout < 0:
        raise BadRequestError(f"timeout: expected microseconds >= 0, got {timeout}")
    requested = fields.get("outputs")
    outputs = None if requested is None else _requested_outputs(_list(requested, "outputs"), is_binary)
    id = None if fields.get("id") is None else _text(fields["id"], "id")
    return InferenceRequest(
        id, inputs, outputs, is_binary, _integer(parameters.get("priority", 0), "priority"), timeout / 1e6 if timeout else None
    )


def _requested_outputs(entries: Sequence[Any], is_binary: bool) -> dict[str, bool]:
    outputs: dict[str, bool] = {}
    for entry in entries:
        output = _object(entry, "an output")
        settings = _object(output.get("parameters", {}), "parameters of an output")
        outputs[_text(output.get("name"), "name of an output")] = settings.get("binary_data", is_binary) is True
    return outputs


def _tensor(name: str, tensor: Mapping[str, Any], binary: memoryview, start: int) -> tuple[NDArray[Any], int]:
    """Return an input's array, and the offset at which the binary data of the next input starts."""
    datatype = _text(tensor.get("datatype"), f"datatype of input {name!r}")
    if datatype not in _DTYPES:
        raise BadRequestError(f"input {name!r}: datatype {datatype!r}; expected one of {', '.join(_DTYPES)}")
    dtype = _DTYPES[datatype]
    shape = [_integer(size, f"shape of input {name!r}") for size in _list(tensor.get("shape"), f"shape of input {name!r}")]
    if len(shape) > _MAX_RANK or any(size < 0 for size in shape):
        raise BadRequestError(f"input {name!r}: shape {shape}; expected up to {_MAX_RANK} sizes >= 0")
    count = prod(shape)
    settings = _object(tensor.get("parameters", {}), f"parameters of input {name!r}")
    if "binary_data_size" in settings:
        size = _integer(settings["binary_data_size"], f"binary_data_size of input {name!r}")
        if size != count * dtype.itemsize or size > len(binary) - start:
            raise BadRequestError(
                f"input {name!r}: {size} bytes of binary data, {len(binary) - start} in the request; "
                f"expected {count * dtype.itemsize} for {datatype} {shape}"
            )
        # Kernels need booleans of 0 and 1; clients may send other bytes.
        stored = np.dtype(np.uint8) if dtype.kind == "b" else dtype
        # `astype` copies: kernels need aligned elements, and the JSON before the tensors has any length.
        return np.frombuffer(binary[start : start + size], stored).reshape(shape).astype(dtype), start + size
    array = _json_array(name, tensor.get("data"), datatype, dtype)
    if array.size != count or (array.ndim != 1 and list(array.shape) != shape):
        raise BadRequestError(f"input {name!r}: data has the shape {list(array.shape)}; expected {shape}")
    return array.reshape(shape), start


def _json_array(name: str, data: object, datatype: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the elements of an input in JSON, which may be nested.

    Raises BadRequestError for an element that is not of the datatype, or outside its range.
    """
    try:
        values = np.array(data, object)
        wrong = {*map(type, values.ravel().tolist())} - _JSON_TYPES.get(dtype.kind, _FLOAT_TYPES)
        if wrong:
            raise TypeError(f"an element has the type {min(kind.__name__ for kind in wrong)}")
        with np.errstate(over="raise"):
            return values.astype(dtype)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise BadRequestError(f"input {name!r}: data: {error}; expected elements of datatype {datatype}") from error


def encode_response(
    model: str, version: str, request: InferenceRequest, results: Mapping[str, NDArray[Any]]
) -> tuple[bytes, int | None]:
    """Return the body of a response and the size of its JSON; None if all of it is JSON.

    Raises BadRequestError for a requested output that the model does not have.
    """
    outputs = request.outputs if request.outputs is not None else dict.fromkeys(results, request.binary)
    entries, parts = list[dict[str, Any]](), list[bytes]()
    for name, is_binary in outputs.items():
        if name not in results:
            raise BadRequestError(f"no output is named {name!r}; the outputs are {', '.join(results)}")
        array = results[name]
        entry: dict[str, Any] = {"name": name, "datatype": datatype_of(array.dtype), "shape": list(array.shape)}
        if is_binary:
            parts.append(np.ascontiguousarray(array).tobytes())
            entry["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            # JSON has no bfloat16, NaN and infinity; Python's parser and most others read the last two as written here.
            entry["data"] = (array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array).ravel().tolist()
        entries.append(entry)
    fields = {"model_name": model, "model_version": version, **({"id": request.id} if request.id is not None else {})}
    head = json.dumps({**fields, "outputs": entries}).encode()
    return b"".join([head, *parts]), len(head) if parts else None


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequestError(f"{what}: expected an object, got {_kind(value)}")
    return cast("dict[str, Any]", value)


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadRequestError(f"{what}: expected a list, got {_kind(value)}")
    return cast("list[Any]", value)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise BadRequestError(f"{what}: expected a string, got {_kind(value)}")
    return value


def _integer(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 62:
        raise BadRequestError(f"{what}: expected an integer, got {_kind(value)}")
    return value


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
