"""TFLite operators against recorded results of LiteRT, quantized ones within one step of their scale, on each target."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.frontend.tflite.reader import OPERATORS
from dlc.frontend.tflite.schema import read_file
from tests.frontend.tflite.recorded_models import recorded

# Relative tolerance of floats by kind: 16-bit data is rounded to its step, and LiteRT quantizes the data to 8 bits where the
# weights are quantized.
SHARES = {"net_int16": 2e-4, "weight_only_dynamic": 2e-2}


@pytest.mark.parametrize("name", recorded())
def test_equals_litert(name: str) -> None:
    found = recorded()[name]
    for target in ("reference", "cpu") if name == "net_int8" else ("reference",):
        results = dlc.compile_model(found.file, target=target, num_threads=1)(*found.inputs)
        for (output, got), wanted in zip(results.items(), found.outputs, strict=True):
            got = np.asarray(got)
            assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), output
            apart = 1 if wanted.dtype == np.int8 else SHARES.get(name, 1e-5) * np.abs(wanted).max(initial=0)
            worst = np.abs(got.astype(np.float64) - wanted.astype(np.float64)).max(initial=0)
            assert worst <= apart, f"{output}: {worst} apart, {apart} allowed"


def test_every_operator_is_recorded() -> None:
    graphs = [graph for found in recorded().values() for graph in read_file(found.file).graphs]
    assert {operator.kind for graph in graphs for operator in graph.operators} == set(OPERATORS)


def test_the_documentation_lists_them() -> None:
    page = (Path(__file__).parents[3] / "docs" / "tflite.md").read_text()
    listed = page[page.index("## Supported operators") : page.index("All of them are tested")]
    custom = {name.removeprefix("CUSTOM ") for name in OPERATORS if name.startswith("CUSTOM ")}
    assert set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", listed)) == {name for name in OPERATORS if "CUSTOM " not in name}
    assert custom <= set(re.findall(r"\w+", listed))
