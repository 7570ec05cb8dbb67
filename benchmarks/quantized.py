"""Quantised models: python benchmarks/quantized.py FOLDER [MODEL:KIND …], and then python benchmarks/models.py FOLDER/*.onnx.

Models are those of `benchmarks/models.py`, calibrated with one input. KIND is words: `resnet18:qdq,per_channel`. dlc makes
those of dlc (or dlc,dynamic), with a scale for each channel; ONNX Runtime's quantiser those of qdq (the default), qoperator or
dynamic. There are also s8 (data, else u8); of dlc's everywhere (results of layers too, as ONNX Runtime's are); of ONNX
Runtime's per_channel and u8w (weights, else s8).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from needed import needed

with needed(__doc__):
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import dlc  # noqa: E402
from tests.models import skeletons  # noqa: E402

SET = (
    *("resnet18:qdq", "mobilenet_v2:qdq,per_channel", "bert_base_128:dynamic"),
    *(f"{name}:dlc" for name in ("resnet18", "resnet50", "mobilenet_v2", "bert_base_128")),
    *(f"{name}:dlc,everywhere" for name in ("resnet18", "resnet50", "mobilenet_v2")),
    "bert_base_128:dlc,dynamic",
)


class _Once(q.CalibrationDataReader):
    """One set of inputs."""

    def __init__(self, inputs: dict[str, np.ndarray]) -> None:
        self.left: Iterator[dict[str, np.ndarray]] = iter([inputs])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.left, None)


def write(name: str, words: set[str], file: Path) -> None:
    """A model of the set, quantised as the words say."""
    model = skeletons.filled(name)
    if "dlc" in words:
        dlc.quantize(
            model,
            [dict(skeletons.inputs(name, model))],
            dynamic="dynamic" in words,
            activations="s8" if "s8" in words else "u8",
            everywhere="everywhere" in words,
            # Weights are random: that takes long, and makes nothing faster.
            rounding="nearest",
        ).save(file)
        return
    weights = q.QuantType.QUInt8 if "u8w" in words else q.QuantType.QInt8
    with TemporaryDirectory() as folder:
        source, prepared = (str(Path(folder, f"{stem}.onnx")) for stem in ("source", "prepared"))
        onnx.save(model, source)
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        if "dynamic" in words:
            q.quantize_dynamic(prepared, file, weight_type=weights, per_channel="per_channel" in words)
            return
        q.quantize_static(
            prepared,
            file,
            _Once(dict(skeletons.inputs(name, model))),
            quant_format=q.QuantFormat.QOperator if "qoperator" in words else q.QuantFormat.QDQ,
            per_channel="per_channel" in words,
            activation_type=q.QuantType.QInt8 if "s8" in words else q.QuantType.QUInt8,
            weight_type=weights,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", default=SET)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for model in arguments.models:
        name, _, words = model.partition(":")
        file = arguments.folder / f"{name}_{words.replace(',', '_') or 'qdq'}.onnx"
        write(name, set(words.split(",")), file)
        print(file)


if __name__ == "__main__":
    main()
