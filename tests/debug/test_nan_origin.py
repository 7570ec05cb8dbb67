"""The origin of a NaN: the op, the line or node, and whether it is in a derivative."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import dlc
import dlc.numpy as dnp
from dlc.cli import main


def line_of(function: Callable[..., Any], text: str) -> str:
    """Return the location of the first line of a function that contains this text."""
    lines, start = inspect.getsourcelines(function)
    return f"{inspect.getsourcefile(function)}:{start + next(k for k, line in enumerate(lines) if text in line)}"


def logarithms(x: Any) -> Any:
    shifted = x - 2
    logs = dnp.log(shifted)
    return dnp.sum(logs * 2)


def distance(x: Any) -> Any:
    total = dnp.sum(x * x)
    return dnp.sqrt(total)


def test_op_line_and_operands() -> None:
    found = dlc.debug.first_nan(logarithms, np.array([3.0, 1.0, 4.0]))
    assert found is not None
    assert (found.op, found.in_derivative, found.count, found.size) == ("dl.log", False, 1, 3)
    assert found.location == line_of(logarithms, "dnp.log")
    assert str(found).endswith("produces the first NaN: 1 of 3 elements; operand -1 at [1]")


def test_in_the_derivative() -> None:
    assert dlc.debug.first_nan(distance, np.zeros(3)) is None
    found = dlc.debug.first_nan(dlc.grad(distance), np.zeros(3))
    assert found is not None and found.in_derivative
    assert f"in the derivative of {line_of(distance, 'x * x')}" in str(found)


def test_none_without_a_nan() -> None:
    assert dlc.debug.first_nan(logarithms, np.array([3.0])) is None


def test_discarded_nans_are_not_reported() -> None:
    def chosen(x: Any) -> Any:
        return dnp.where(x > 0, dnp.log(x), 0.0) + dnp.sqrt(x - 10)

    assert dlc.debug.first_nan(lambda x: dnp.where(x > 0, dnp.log(x), 0.0), np.array([-1.0, 1.0])) is None
    found = dlc.debug.first_nan(chosen, np.array([-1.0, 1.0]))
    assert found is not None and found.op == "dl.sqrt"


def test_inputs_that_contain_nan() -> None:
    table = np.array([1.0, np.nan])
    found = dlc.debug.first_nan(lambda x: x + 1, np.array([np.nan, 2.0]))
    assert str(found) == "argument x contains NaN: 1 of 2 elements"
    found = dlc.debug.first_nan(lambda x: x + table, np.zeros(2))
    assert found is not None and found.op == "weight"


def test_in_a_loop() -> None:
    def shrinking(x: Any) -> Any:
        def step(carry: Any, t: Any) -> Any:
            return carry - t, dnp.sqrt(carry)

        return dlc.lax.scan(step, x, np.arange(4.0))[1]

    found = dlc.debug.first_nan(shrinking, np.float64(2.0))
    assert found is not None and found.location == line_of(shrinking, "dnp.sqrt") and found.operands == "operand -1"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = √(x·w) + 1."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["m"], name="times"),
        helper.make_node("Sqrt", ["m"], ["r"], name="root"),
        helper.make_node("Add", ["r", "one"], ["y"], name="more"),
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", "y")]
    weights = [numpy_helper.from_array(np.full(1, v, np.float32), name) for name, v in (("w", -1.0), ("one", 1.0))]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], weights)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize(
    ("x", "arguments", "status", "text"),
    [
        ([-4, -1], [], 0, "no output contains a NaN"),
        ([-4, 1], [], 1, "dl.sqrt at root produces the first NaN: 1 of 2 elements; operand -1 at [1]"),
        ([0, -1], ["--vjp", "y", "--wrt", "w"], 1, "in the derivative of times produces the first NaN"),
        ([-4, np.nan], [], 1, "argument x contains NaN: 1 of 2 elements"),
    ],
)
def test_on_the_command_line(model: Path, x: list[float], arguments: list[str], status: int, text: str) -> None:
    np.save(model.parent / "x.npy", np.array(x, np.float32))
    line = ["run", str(model), "--first-nan", "--input", f"x={model.parent / 'x.npy'}", *arguments]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == status and text in done.output
