"""The models in this folder: exported graphs without weights, which are filled here, with recorded inputs and outputs.

In a *skeleton*, each large initializer has no data, and its doc_string says how to fill it: "dlc-fill MEAN STD". `filled`
draws these weights, seeded by the initializer's name, so that every machine gets the same model; `inputs` creates the inputs
with which `expected/skeletons.npz` was recorded. The recorded tensors are subsampled by `sampled`.

    python -m tests.models.skeletons resnet50 resnet50.onnx      writes a filled model
"""

from __future__ import annotations

import math
import resource
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from unittest import SkipTest

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, helper

FOLDER = Path(__file__).parent
PRETRAINED = FOLDER.parents[1] / "examples" / "models"
# The batch size with which models with a symbolic batch were recorded.
BATCHES = {"resnet18_dynbatch": 3}
# The tolerance of deviations from the recording.
TOLERANCE = 1e-4
# Copies of the weights in memory during compilation: in the protobuf message, in the program, and packed.
_COPIES = 3


def path_of(name: str) -> Path:
    """Return the file of a model that is not a skeleton."""
    small = FOLDER / "small" / f"{name}.onnx"
    return small if small.exists() else PRETRAINED / f"{name}.onnx"


def filled(name: str) -> ModelProto:
    """Return a skeleton with weights of realistic scale. Skips the test if the process may not have enough memory."""
    model = onnx.load(FOLDER / "skeletons" / f"{name}.onnx")
    hollow = [tensor for tensor in model.graph.initializer if tensor.doc_string.startswith("dlc-fill ")]
    _require_memory(name, _COPIES * sum(4 * math.prod(tensor.dims) for tensor in hollow))
    for tensor in hollow:
        mean, std = (np.float32(word) for word in tensor.doc_string.split()[1:])
        draw = np.random.default_rng(zlib.crc32(tensor.name.encode()))
        weights = draw.standard_normal(tuple(tensor.dims), dtype=np.float32)
        # In place: some weights are 100 MB.
        weights *= std
        weights += mean
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        tensor.raw_data = weights.astype(dtype, copy=False).tobytes()
        tensor.ClearField("doc_string")
    return model


def _require_memory(name: str, needed: int) -> None:
    """Skip the test if a limit (`ulimit -v`) leaves too little memory: protobuf aborts the process when it runs out."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    with open("/proc/self/statm") as file:
        left = limit - int(file.read().split()[0]) * resource.getpagesize()
    if left < needed:
        raise SkipTest(f"{name} takes {needed >> 20} MB of memory, and the limit (ulimit -v) leaves {left >> 20}")


def inputs(name: str, model: ModelProto, batch: int | None = None) -> dict[str, NDArray[np.generic]]:
    """Return the inputs that a skeleton was recorded with, or inputs of another batch size if that is symbolic."""
    return {value.name: _input(value, batch or BATCHES.get(name, 1)) for value in model.graph.input}


def _input(value: onnx.ValueInfoProto, batch: int) -> NDArray[np.generic]:
    shape = [d.dim_value or batch for d in value.type.tensor_type.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    draw = np.random.default_rng(0)
    if "mask" in value.name:
        mask = np.ones(shape, dtype)
        mask[..., -28:] = 0  # padding
        return mask
    if "token_type" in value.name:
        return np.zeros(shape, dtype)
    if np.issubdtype(dtype, np.integer):
        return draw.integers(0, 60, shape).astype(dtype)
    return draw.standard_normal(shape, dtype=np.float32).astype(dtype)


def sampled(tensor: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return about a thousand elements of a tensor; the odd step finds errors of power-of-two layouts."""
    step = max(1, tensor.size // 1024)
    return tensor.reshape(-1)[:: step + (step % 2 == 0)]


def recorded(name: str) -> tuple[dict[str, NDArray[np.generic]], dict[str, NDArray[np.generic]]]:
    """Return a skeleton's recorded outputs and inner tensors, subsampled, by name."""
    found: dict[str, dict[str, NDArray[np.generic]]] = {"out": {}, "mid": {}}
    with np.load(FOLDER / "expected" / "skeletons.npz") as arrays:
        for key in arrays.files:
            model, kind, tensor = key.split("/", 2)
            if model == name:
                found[kind][tensor] = arrays[key]
    return found["out"], found["mid"]


def recordings(name: str) -> Iterator[tuple[dict[str, NDArray[np.generic]], dict[str, NDArray[np.generic]]]]:
    """Return the recorded inputs and outputs of a model that is not a skeleton, one pair per input set."""
    return pairs_in(FOLDER / "expected" / f"{name}.npz")


def pairs_in(path: Path) -> Iterator[tuple[dict[str, NDArray[np.generic]], dict[str, NDArray[np.generic]]]]:
    """Return the inputs and outputs in a file, one pair per input set."""
    with np.load(path) as arrays:
        for k in sorted({key.split("/", 1)[0] for key in arrays.files}):
            yield tuple(  # pyright: ignore[reportReturnType]
                {key.split("/", 2)[2]: arrays[key] for key in arrays.files if key.startswith(f"{k}/{kind}/")}
                for kind in ("in", "out")
            )


def deviation(got: NDArray[np.generic], expected: NDArray[np.generic]) -> float:
    """Return the largest difference, as a fraction of the largest expected magnitude."""
    largest = float(np.abs(expected.astype(np.float64)).max(initial=0))
    difference = float(np.abs(got.astype(np.float64) - expected.astype(np.float64)).max(initial=0))
    return difference / largest if largest else difference


if __name__ == "__main__":
    onnx.save(filled(sys.argv[1]), sys.argv[2])
