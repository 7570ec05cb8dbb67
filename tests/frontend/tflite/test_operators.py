"""Operators of TFLite files: results as LiteRT computed them, integers to one step of their scale, on each target."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.frontend.tflite.reader import OPERATORS
from dlc.frontend.tflite.schema import read_file
from tests.frontend.tflite.recorded import recorded

# What the recordings do not have, and why.
WITHOUT = {
    "SELECT": "",
}


@pytest.mark.parametrize("name", recorded())
def test_it_computes_what_litert_did(name: str) -> None:
    found = recorded()[name]
    for target in ("reference", "cpu") if name.startswith("net_") else ("reference",):
        results = dlc.compile_model(found.file, target=target, num_threads=1)(*found.inputs)
        for (output, got), wanted in zip(results.items(), found.outputs, strict=True):
            got = np.asarray(got)
            assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), output
            # LiteRT rounds data to 8 bits where only weights are stored so.
            share = 0.02 if name.endswith(("dynamic", "int16")) else 1e-5
            apart = 1 if wanted.dtype == np.int8 else share * np.abs(wanted).max(initial=0)
            worst = np.abs(got.astype(np.float64) - wanted.astype(np.float64)).max(initial=0)
            assert worst <= apart, f"{output}: {worst} apart, {apart} allowed"
