"""Small models that run without Python, and their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx.parser
from numpy.typing import NDArray

import dlc
import dlc.numpy as dnp
from dlc.arrays import TensorInfo
from dlc.backends.cpu.runtime_code import runtime_object
from dlc.compiler import compile
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.models.model import Model
from dlc.runtime.models.specializations import Specialization
from dlc.runtime.models.specialized_model import SpecializedModel
from dlc.runtime.program.host_program import Branch, Fail, HostArray, HostProgram, Instruction, PrintArrays
from dlc.shapes.dims import Dim, is_symbol
from dlc.shapes.domain import SizeDomain
from dlc.target import CPU_LEVELS
from tests.shapes.test_dynamic_control_flow import lowered, nested

draw = np.random.default_rng(0)
W = draw.standard_normal((64, 48)).astype(np.float32)
X = draw.standard_normal((300, 64)).astype(np.float32)


@cache
def layer(target: str = "cpu") -> Model:
    """Enough work for several threads; its second input has a default."""
    model = dlc.jit(lambda x, b: dnp.tanh(x @ W + b), target=target).lower(X, W[0]).compile()
    model.defaults = {model.inputs[1].name: W[0]}
    return model


@cache
def loops(target: str = "cpu") -> Model:
    """Symbolic sizes, nested loops, and branches."""
    return compile(lowered(nested), target)


@cache
def update(target: str = "cpu") -> Model:
    """Its first output overwrites its first input."""
    return dlc.jit(lambda p, g: (p - g, dnp.sum(p * g)), donate_argnames=("p",), target=target).lower(X, X).compile()


@cache
def served() -> Model:
    """For fewer than five rows it is specialized: its first output has another shape then."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
        part (float[n, 4] x) => (float[m, 4] y, float[n, 4] z)
        { two = Constant<value_ints = [2]>() five = Constant<value_ints = [5]>() y = Slice(x, two, five) z = Exp(x) }"""
    model = dlc.compile_model(onnx.parser.parse_model(text))
    assert not isinstance(model.artifact, Artifact)
    return model


@cache
def multiplied(target: str = "cpu") -> Model:
    """x + W[0] or, if `by` is 2, x · 2 · `more` for `more` 2 or 3: specialized for values."""
    x, y = (TensorInfo(name, (2, 48), X.dtype) for name in ("x", "y"))
    by, more = (TensorInfo(name, (), np.dtype(np.int64)) for name in ("by", "more"))

    def program(function: Callable[[Any], Any]) -> Model:
        return dlc.jit(function, target=target).lower(X[:2, :48]).compile()

    doubled = SpecializedModel("doubled", (x, more), (y,), values=("more",))
    for k in (2, 3):
        doubled.add(program(lambda x, k=k: x * np.float32(2 * k)), {"more": np.int64(k)})
    specialized = SpecializedModel("multiplied", (x, by, more), (y,), values=("by",))
    specialized.add(program(lambda x: x + W[0]), {"by": np.int64(1)})
    specialized.add(doubled.model(), {"by": np.int64(2)})
    return specialized.model()


@cache
def by_shape() -> Model:
    """x + W[0] · a, for three rows and for one; `a` has one shape."""
    x, y = (TensorInfo(name, (Dim.symbol("n"), 48), X.dtype) for name in ("x", "y"))
    a = TensorInfo("a", (), X.dtype)
    specialized = SpecializedModel("by_shape", (x, a), (y,))
    for n in (3, 1):
        specialized.add(dlc.jit(lambda x, a: x + W[0] * a).lower(X[:n, :48], W[0, 0]).compile())
    return specialized.model()


@cache
def failing() -> Model:
    """Fails unless its first byte is 0, with the following values in the message."""
    return _only(Branch((2, 0), (), (Fail("{} at {} of {}", ((2, 8), (2, 16))),)))


def printing() -> Model:
    """Prints its input, if there is Python."""
    return _only(PrintArrays(("x is ", "", ""), (HostArray((2, 0), (3,), np.dtype(np.int64)),)))


def _only(instruction: Instruction) -> Model:
    """A program of three numbers that is one instruction."""
    program = HostProgram((TensorInfo("x", (3,), np.dtype(np.int64)),), (), (), (instruction,))
    return Artifact("failing", CPU_LEVELS["cpu:generic"], program, (), {}, runtime_object()).model()


def several() -> Model:
    """A model that is specialized for each value of its data-dependent size."""
    made = layer()
    entry = Specialization(made, SizeDomain.of_sizes({"N": 1}), is_guaranteed=False)
    return SpecializedModel("several", made.inputs, made.outputs, entries=[entry], data_dependent_sizes=("N",)).model()


def sizes_of(model: Model, inputs: Sequence[NDArray[Any] | None]) -> list[int]:
    """Return the values of the symbolic sizes for these inputs; None is an omitted input."""
    found: dict[str, int] = {}
    for info, array in zip(model.inputs, inputs, strict=True):
        if array is None:
            continue
        found |= {str(size): n for size, n in zip(info.shape, array.shape, strict=True) if is_symbol(size)}
    return list(found.values())
