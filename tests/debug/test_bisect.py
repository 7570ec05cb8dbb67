"""The pass that changes the numbers is found."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from dlc.cli import main
from dlc.compiler import Program
from dlc.debug.bisect import bisect, deviation
from dlc.dialects import dl
from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp, parse_module
from dlc.passes.dl.cse import CsePass
from dlc.weights import WeightStore

TEXT = """
func.func @main(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %a = dl.exp %x : (tensor<3x4xf32>) -> tensor<3x4xf32>
  %b = dl.exp %x : (tensor<3x4xf32>) -> tensor<3x4xf32>
  %c = dl.add %a, %b : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
  func.return %c : tensor<3x4xf32>
}
"""
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def program() -> Program:
    return Program(parse_module(make_context(), TEXT), WeightStore())


def test_sound_passes_change_nothing(program: Program) -> None:
    steps = bisect(program, [X])
    assert [s.stage for s in steps][-1] == "native"
    assert {"dl", "fusion", "linalg", "tiling", "loops", "host"} <= {s.stage for s in steps}
    assert max(s.deviation for s in steps) < 1e-5


@pytest.fixture
def wrong_cse(monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(self: CsePass, context: object, module: ModuleOp) -> None:
        for op in list(module.walk()):
            if isinstance(op, dl.AddOp):
                op.operands[1] = op.parent.args[0]

    monkeypatch.setattr(CsePass, "apply", apply)


def test_a_wrong_pass_is_named(program: Program, wrong_cse: None) -> None:
    last = bisect(program, [X])[-1]
    assert (last.stage, last.spec, last.output) == ("dl", "cse", "output0")
    assert last.deviation > 0.1


def test_the_command_ends_with_1(tmp_path: object, program: Program, wrong_cse: None) -> None:
    file = tmp_path / "p.mlir"
    file.write_text(TEXT)
    result = CliRunner().invoke(main, ["bisect", str(file)])
    assert result.exit_code == 1
    assert "cse (dl) changes output output0" in result.stderr


def test_deviation_of_special_values() -> None:
    a = np.array([1, np.nan, np.inf], np.float32)
    assert deviation(a, a) == 0
    assert deviation(a, np.array([1, 0, np.inf], np.float32)) == np.inf
    assert deviation(a, a[:2]) == np.inf
    assert deviation(np.array([2, 4]), np.array([2, 5])) == pytest.approx(0.2)
