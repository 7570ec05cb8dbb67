"""Oclgrind finds no errors in the kernels of a model, and finds planted ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlc.ir import print_module
from tests.backends.opencl.gpu_simulator import TOOL, reports
from tests.backends.reference.test_groups import REVERSED

pytest.importorskip("pyopencl")
pytestmark = pytest.mark.skipif(TOOL is None, reason="oclgrind is not installed (apt install oclgrind)")

KERNEL = print_module(REVERSED, locations=False)


def reported(tmp_path: Path, text: str) -> str:
    file = tmp_path / "kernel.mlir"
    file.write_text(text)
    return reports(file, "opencl:small")


@pytest.mark.parametrize("profile", ["opencl:gpu", "opencl:small"])
def test_a_model_has_no_race_and_no_invalid_access(profile: str) -> None:
    assert reports("mnist_cnn", profile) == ""


def test_a_race_is_found(tmp_path: Path) -> None:
    assert reported(tmp_path, KERNEL) == ""
    assert "data race" in reported(tmp_path, KERNEL.replace('"gpu.barrier"() : () -> ()', ""))


def test_an_overrun_is_found(tmp_path: Path) -> None:
    assert "Invalid read" in reported(tmp_path, KERNEL.replace("arith.constant 7 :", "arith.constant 9 :"))
