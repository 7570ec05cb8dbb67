"""Write quantized models: python benchmarks/quantized.py FOLDER [MODEL:KIND …], then benchmarks/models.py FOLDER/*.onnx.

MODEL is a skeleton of `benchmarks/models.py`, calibrated with one input. KIND is a comma-separated list of options, such as
`resnet18:qdq,per_channel`:

- dlc: quantize with dlc, per channel; with `dynamic`, `reduce_range` (weights of 7 bits), or `quantize_outputs` (results of
  layers too, as ONNX Runtime does);
- qdq (default), qoperator or dynamic: quantize with ONNX Runtime; with `per_channel`, or `u8w` (uint8 weights, else int8);
- s8: int8 activations (else uint8).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from optional_imports import optional_imports

with optional_imports(__doc__):
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import dlc  # noqa: E402
from tests.models import skeletons  # noqa: E402

SET = (
    *("resnet18:qdq", "mobilenet_v2:qdq,per_channel", "bert_base_128:dynamic"),
    *(f"{name}:dlc" for name in ("resnet18", "resnet50", "mobilenet_v2", "bert_base_128")),
    *(f"{name}:dlc,quantize_outputs" for name in ("resnet18", "resnet50", "mobilenet_v2")),
    "bert_base_128:dlc,dynamic",
)


class _Once(q.CalibrationDataReader):
    """Calibration data of one set of inputs."""

    def __init__(self, inputs: dict[str, np.ndarray]) -> None:
        self.remaining: Iterator[dict[str, np.ndarray]] = iter([inputs])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.remaining, None)


def write(name: str, kind: set[str], file: Path) -> None:
    """Quantize a model and write it to a file."""
    model = skeletons.filled(name)
    if "dlc" in kind:
        dlc.quantize(
            model,
            [dict(skeletons.inputs(name, model))],
            dynamic="dynamic" in kind,
            activations="s8" if "s8" in kind else "u8",
            quantize_outputs="quantize_outputs" in kind,
            reduce_range="reduce_range" in kind,
            # Optimized rounding is slow and pointless for random weights.
            rounding="nearest",
        ).save(file)
        return
    weights = q.QuantType.QUInt8 if "u8w" in kind else q.QuantType.QInt8
    with TemporaryDirectory() as folder:
        source, prepared = (str(Path(folder, f"{stem}.onnx")) for stem in ("source", "prepared"))
        onnx.save(model, source)
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        if "dynamic" in kind:
            q.quantize_dynamic(prepared, file, weight_type=weights, per_channel="per_channel" in kind)
            return
        q.quantize_static(
            prepared,
            file,
            _Once(dict(skeletons.inputs(name, model))),
            quant_format=q.QuantFormat.QOperator if "qoperator" in kind else q.QuantFormat.QDQ,
            per_channel="per_channel" in kind,
            activation_type=q.QuantType.QInt8 if "s8" in kind else q.QuantType.QUInt8,
            weight_type=weights,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", default=SET)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for model in arguments.models:
        name, _, kind = model.partition(":")
        file = arguments.folder / f"{name}_{kind.replace(',', '_') or 'qdq'}.onnx"
        write(name, set(kind.split(",")), file)
        print(file)


if __name__ == "__main__":
    main()
