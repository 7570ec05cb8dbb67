"""What came of a quantisation: the model, and what was measured, as values and as a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from onnx import ModelProto

from dlc.files.whole_files import path_of, written_whole
from dlc.frontend.onnx.graph import ModelFile
from dlc.quantization.graph import save
from dlc.quantization.settings import Settings


@dataclass(frozen=True)
class Data:
    """What a layer reads: the least and the largest value that was seen, and the scale and zero point of its integers."""

    least: float
    largest: float
    scale: float
    zero_point: int


@dataclass(frozen=True)
class LayerReport:
    """A layer: its node, how many weights it has, what it reads (None: quantised when it runs), the outputs' error with it
    alone in integers (None: not measured), and whether it is kept in floats."""

    name: str
    op: str
    weights: int
    data: Data | None
    error: float | None
    kept: bool


@dataclass(frozen=True)
class Quantization:
    """A quantised model, how it was made and what was measured.

    `error` is the norm of the difference between its outputs and those of the model in floats, as a share of the norm of these,
    over all samples; of the output where it is largest. `others` are nodes that look like layers, and why they are none.
    """

    model: ModelProto
    name: str
    settings: Settings
    layers: tuple[LayerReport, ...]
    others: Mapping[str, str]
    samples: int
    error: float | None
    bytes_before: int
    bytes_after: int

    @staticmethod
    def of(
        file: ModelFile,
        made: ModelProto,
        settings: Settings,
        layers: Sequence[LayerReport],
        others: Mapping[str, str],
        samples: int,
        error: float | None,
    ) -> Quantization:
        """That of a file into the model that was `made` of it."""
        sizes = file.proto.ByteSize(), made.ByteSize()
        return Quantization(made, file.name, settings, tuple(layers), others, samples, error, *sizes)

    @property
    def kept(self) -> int:
        """How many layers stay in floats."""
        return sum(layer.kept for layer in self.layers)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the quantised model, an ONNX file. Raises DlcError when it cannot be written."""
        save(self.model, path_of(path))

    def save_page(self, path: str | PathLike[str]) -> None:
        """Writes what was measured as one HTML page. Raises DlcError when it cannot be written."""
        environment = Environment(
            loader=PackageLoader("dlc.quantization", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        worst = max((layer.error or 0 for layer in self.layers), default=0) or 1
        page = environment.get_template("report.html").render(made=self, worst=worst, decibels=decibels)
        with written_whole(path_of(path)) as file:
            file.write(page.encode())

    def to_json(self) -> dict[str, Any]:
        """What was measured, for programs."""
        return {
            "model": self.name,
            "settings": asdict(self.settings),
            "samples": self.samples,
            "error": self.error,
            "bytes": {"before": self.bytes_before, "after": self.bytes_after},
            "layers": [asdict(layer) for layer in self.layers],
            "others": dict(self.others),
        }


def decibels(error: float) -> str:
    """A share of noise as the ratio of signal to it."""
    return f"{-20 * math.log10(error):.1f} dB" if error > 0 else "no noise"
