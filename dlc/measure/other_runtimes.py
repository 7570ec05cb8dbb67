"""Run the same ONNX file in other runtimes, if they are installed; dlc does not depend on them."""

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


class ModelOpener(Protocol):
    """Opens a file as a callable; f32 models are computed in `precision`: `f32`, `bf16` or `f16`."""

    def __call__(self, path: Path, inputs: Inputs, threads: int, precision: str = "f32") -> Callable[[], Outputs]: ...


@dataclass(frozen=True)
class Peer:
    """A runtime: its name, its package on PyPI, and its opener.

    All compute in the requested precision, whatever their default; ONNX Runtime supports only that of the file.
    """

    name: str
    package: str
    open: ModelOpener

    @property
    def installed(self) -> bool:
        """Return whether the package is installed."""
        return find_spec(self.package) is not None


def installed_peers(names: list[str] | None = None) -> list[Peer]:
    """Return the runtimes with these names, or all installed ones.

    Raises UnsupportedError for an unknown name, or if a package is not installed.
    """
    if names is None:
        return [peer for peer in PEERS.values() if peer.installed]
    for name in names:
        if name not in PEERS:
            raise UnsupportedError(f"no runtime {name!r} to compare with; expected {', '.join(PEERS)}")
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
    inputs_copy = dict(inputs)
    return lambda: dict(zip(names, session.run(names, inputs_copy), strict=True))


def _openvino(path: Path, inputs: Inputs, threads: int, precision: str = "f32") -> Callable[[], Outputs]:
    openvino: Any = importlib.import_module("openvino")
    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    model = core.read_model(path)
    model.reshape({port: list(inputs[port.get_any_name()].shape) for port in model.inputs})
    compiled = core.compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    # An output may have several names.
    names = [(k, name) for k, port in enumerate(compiled.outputs) for name in port.get_names()]
    inputs_copy = dict(inputs)

    def run() -> Outputs:
        results = request.infer(inputs_copy)
        return {name: results[k] for k, name in names}

    return run


PEERS = {
    peer.name: peer for peer in (Peer("onnxruntime", "onnxruntime", _onnxruntime), Peer("openvino", "openvino", _openvino))
}
