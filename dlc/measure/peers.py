"""Other runtimes on the same ONNX file, where they are installed; dlc needs none of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from dlc.errors import UnsupportedError

Inputs = Mapping[str, NDArray[Any]]
Outputs = Mapping[str, NDArray[Any]]


class Opens(Protocol):
    """Makes a callable model of a file; models in f32 are computed in a precision of `f32`, `bf16` or `f16`."""

    def __call__(self, path: Path, inputs: Inputs, threads: int, precision: str = "f32") -> Callable[[], Outputs]: ...


@dataclass(frozen=True)
class Peer:
    """A runtime: its name, its package on PyPI, and how it opens a model.

    All compute in the precision that is asked for, whatever their default is; ONNX Runtime has but that of the file.
    """

    name: str
    package: str
    open: Opens

    @property
    def installed(self) -> bool:
        """Whether the package is there."""
        return find_spec(self.package) is not None


def peers(names: list[str] | None = None) -> list[Peer]:
    """The runtimes called so; those installed if none are named.

    Raises UnsupportedError for a name that is unknown, or whose package is not installed.
    """
    if names is None:
        return [peer for peer in PEERS.values() if peer.installed]
    for name in names:
        if name not in PEERS:
            raise UnsupportedError(f"no runtime {name!r} to compare with; there are {', '.join(PEERS)}")
        if not PEERS[name].installed:
            raise UnsupportedError(f"{name} is not installed: pip install {PEERS[name].package}")
    return [PEERS[name] for name in names]


def _onnxruntime(path: Path, inputs: Inputs, threads: int, precision: str = "f32") -> Callable[[], Outputs]:
    runtime: Any = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    given = dict(inputs)
    return lambda: dict(zip(names, session.run(names, given), strict=True))


def _openvino(path: Path, inputs: Inputs, threads: int, precision: str = "f32") -> Callable[[], Outputs]:
    openvino: Any = importlib.import_module("openvino")
    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    model = core.read_model(path)
    model.reshape({port: list(inputs[port.get_any_name()].shape) for port in model.inputs})
    compiled = core.compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    # A result that another node's name stands for has both.
    names = [(k, name) for k, port in enumerate(compiled.outputs) for name in port.get_names()]
    given = dict(inputs)

    def run() -> Outputs:
        results = request.infer(given)
        return {name: results[k] for k, name in names}

    return run


PEERS = {
    peer.name: peer for peer in (Peer("onnxruntime", "onnxruntime", _onnxruntime), Peer("openvino", "openvino", _openvino))
}
