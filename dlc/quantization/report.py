"""The result of a quantization: the model and the measurements, as values and as an HTML page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from onnx import ModelProto

from dlc.files.atomic_writes import atomic_write, to_path
from dlc.frontend.onnx.graph import ModelFile
from dlc.quantization.graph import save
from dlc.quantization.settings import QuantizationSettings


@dataclass(frozen=True)
class InputRange:
    """The range of a layer's input, and its scale and zero point."""

    min_value: float
    max_value: float
    scale: float
    zero_point: int


@dataclass(frozen=True)
class LayerReport:
    """A layer: node name, op, number of weights, input range and output error.

    `data` is None for dynamic quantization. `error` is the output error with only this layer quantized, None if not measured.
    """

    name: str
    op: str
    weights: int
    data: InputRange | None
    error: float | None
    kept_in_float: bool


@dataclass(frozen=True)
class QuantizationReport:
    """A quantized model, its settings and measurements.

    `error` is the relative output error, ‖quantized - float‖ / ‖float‖ over all samples, of the output with the largest one.
    `skipped_nodes` are nodes with weights that are not quantizable, with the reason.
    """

    model: ModelProto
    name: str
    settings: QuantizationSettings
    layers: tuple[LayerReport, ...]
    skipped_nodes: Mapping[str, str]
    samples: int
    error: float | None
    bytes_before: int
    bytes_after: int

    @staticmethod
    def of(
        file: ModelFile,
        quantized_model: ModelProto,
        settings: QuantizationSettings,
        layers: Sequence[LayerReport],
        skipped_nodes: Mapping[str, str],
        samples: int,
        error: float | None,
    ) -> QuantizationReport:
        """Return the report of quantizing `file` to `quantized_model`."""
        sizes = file.proto.ByteSize(), quantized_model.ByteSize()
        return QuantizationReport(quantized_model, file.name, settings, tuple(layers), skipped_nodes, samples, error, *sizes)

    @property
    def kept_in_float(self) -> int:
        """The number of layers that stay in float."""
        return sum(layer.kept_in_float for layer in self.layers)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the quantized model as an ONNX file. Raises DlcError if it cannot be written."""
        save(self.model, to_path(path))

    def save_page(self, path: str | PathLike[str]) -> None:
        """Write the measurements as an HTML page. Raises DlcError if it cannot be written."""
        environment = Environment(
            loader=PackageLoader("dlc.quantization", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        worst = max((layer.error or 0 for layer in self.layers), default=0) or 1
        page = environment.get_template("report.html").render(report=self, worst=worst, decibels=decibels)
        with atomic_write(to_path(path)) as file:
            file.write(page.encode())

    def to_json(self) -> dict[str, Any]:
        """Return the measurements as JSON values."""
        return {
            "model": self.name,
            "settings": asdict(self.settings),
            "samples": self.samples,
            "error": self.error,
            "bytes": {"before": self.bytes_before, "after": self.bytes_after},
            "layers": [asdict(layer) for layer in self.layers],
            "skipped_nodes": dict(self.skipped_nodes),
        }


def decibels(error: float) -> str:
    """Return the signal-to-noise ratio of an error as text."""
    return f"{-20 * math.log10(error):.1f} dB" if error > 0 else "no noise"
