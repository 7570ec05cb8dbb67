"""Scans: parsing and printing, verification, evaluation, and `unroll-scans`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.backends.reference import evaluate
from dlc.compiler import Program, compile
from dlc.dialects import dl
from dlc.dialects.registry import make_context
from dlc.instrument.verify import verify
from dlc.ir import ModuleOp, VerifyException, parse_module, print_module
from dlc.options import Options
from dlc.passes.dl.programs.bind_dims import bind_dims
from dlc.passes.dl.programs.unroll_scans import UnrollScansPass
from dlc.passes.transformations.expand_transformations import ExpandTransformationsPass
from dlc.weights import WeightStore

# h ← h · v + x; the sequence of values of h, and the last one.
RECURRENCE = """\
builtin.module {
  func.func @main(%h: tensor<3xf32>, %xs: tensor<?x3xf32, #dl.dims<"n", 3>>, %v: tensor<3xf32>) -> (tensor<3xf32>, tensor<?x3xf32, #dl.dims<"n", 3>>) {
    %0, %1 = dl.scan %h, %xs {states = 1 : i64, length = #dl.dims<"n">} : (tensor<3xf32>, tensor<?x3xf32, #dl.dims<"n", 3>>) -> (tensor<3xf32>, tensor<?x3xf32, #dl.dims<"n", 3>>) {
    ^bb0(%h_1: tensor<3xf32>, %x: tensor<3xf32>):
      %2 = dl.mul %h_1, %v : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %3 = dl.add %2, %x : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      dl.yield %3, %3 : tensor<3xf32>, tensor<3xf32>
    }
    func.return %0, %1 : tensor<3xf32>, tensor<?x3xf32, #dl.dims<"n", 3>>
  }
}
"""
# Prefix sums of rows, by nested scans.
NESTED = """\
builtin.module {
  func.func @main(%z: tensor<f32>, %xs: tensor<4x3xf32>) -> (tensor<f32>, tensor<4x3xf32>) {
    %0, %1 = dl.scan %z, %xs {states = 1 : i64, length = array<i64: 4>} : (tensor<f32>, tensor<4x3xf32>) -> (tensor<f32>, tensor<4x3xf32>) {
    ^bb0(%total: tensor<f32>, %row: tensor<3xf32>):
      %2, %3 = dl.scan %z, %row {states = 1 : i64, length = array<i64: 3>} : (tensor<f32>, tensor<3xf32>) -> (tensor<f32>, tensor<3xf32>) {
      ^bb0(%sum: tensor<f32>, %x: tensor<f32>):
        %4 = dl.add %sum, %x : (tensor<f32>, tensor<f32>) -> tensor<f32>
        dl.yield %4, %4 : tensor<f32>, tensor<f32>
      }
      %5 = dl.add %total, %2 : (tensor<f32>, tensor<f32>) -> tensor<f32>
      dl.yield %5, %3 : tensor<f32>, tensor<3xf32>
    }
    func.return %0, %1 : tensor<f32>, tensor<4x3xf32>
  }
}
"""


def parsed(text: str) -> ModuleOp:
    module = parse_module(make_context(), text)
    verify(module)
    return module


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def unrolled(module: ModuleOp) -> ModuleOp:
    UnrollScansPass().apply(make_context(), module)
    verify(module)
    assert not any(isinstance(op, dl.ScanOp) for op in module.walk())
    return module


@pytest.mark.parametrize("text", [RECURRENCE, NESTED], ids=["recurrence", "nested"])
def test_scans_round_trip(text: str) -> None:
    module = parsed(text)
    assert print_module(module) == text
    again = parsed(print_module(module, generic=True))
    assert print_module(again) == text


@pytest.mark.parametrize("length", [0, 1, 5])
def test_scan_of_symbolic_length(length: int) -> None:
    h, xs, v = numbers(3), numbers(length, 3), numbers(3, 1)[:, 0]
    states = [h]
    for x in xs:
        states.append(states[-1] * v + x)
    expected = [states[-1], np.stack(states)[1:]]
    module = parsed(RECURRENCE)
    bind_dims(module, {"n": length})
    verify(module)
    run = compile(Program(parsed(RECURRENCE), WeightStore()), "cpu", Options(num_threads=1, workers=1)).run_unchecked
    for got in (evaluate(module, [h, xs, v]), evaluate(unrolled(module), [h, xs, v]), run([h, xs, v])):
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-6)


def test_nested_scans() -> None:
    z, xs = np.float32(1).reshape(()), numbers(4, 3)
    module = parsed(NESTED)
    for got in (evaluate(module, [z, xs]), evaluate(unrolled(module), [z, xs])):
        # Each row's sum starts at z again.
        np.testing.assert_allclose(got[0], z + 4 * z + xs.sum(), rtol=1e-5)
        np.testing.assert_allclose(got[1], 1 + np.cumsum(xs, 1), rtol=1e-5)


def test_symbolic_length_is_not_unrolled() -> None:
    module = parsed(RECURRENCE)
    UnrollScansPass().apply(make_context(), module)
    assert print_module(module) == RECURRENCE


def heat(x: Any) -> Any:
    """Three steps of the heat equation on a ring, as a matrix A³."""
    return lax.fori_loop(0, 3, lambda _, x: x + 0.25 * (dnp.roll(x, 1) - 2 * x + dnp.roll(x, -1)), x)


def padded_heat(x: Any) -> Any:
    def step(_: Any, x: Any) -> Any:
        wide = dnp.pad(x, 1, mode="wrap")
        return x + 0.25 * (wide[:-2] - 2 * x + wide[2:])

    return lax.fori_loop(0, 3, step, x)


@pytest.mark.parametrize("function", [heat, padded_heat])
def test_stencils_are_not_unrolled(function: Any) -> None:
    """Their gradient is a scan as well: 2 (A³)ᵀ A³ x for the sum of squares."""
    eye = np.eye(100)
    step = eye + 0.25 * (np.roll(eye, 1, 0) - 2 * eye + np.roll(eye, -1, 0))
    cube, x = step @ step @ step, np.linspace(-1, 1, 100)
    gradient = dlc.jit(dlc.grad(lambda x: (function(x) ** 2).sum()), cache=False)
    np.testing.assert_allclose(gradient(x), 2 * cube.T @ cube @ x, atol=1e-12)
    module = gradient.lower(x).program.module.clone()
    ExpandTransformationsPass().apply(make_context(), module)
    UnrollScansPass().apply(make_context(), module)
    assert sum(isinstance(op, dl.ScanOp) for op in module.walk()) == 2


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('length = #dl.dims<"n">', 'length = #dl.dims<"m">', r"expected sequences of m elements \(C1\)"),
        ("%x: tensor<3xf32>", "%x: tensor<3xf32>, %more: tensor<3xf32>", "a body takes"),
        ("states = 1", "states = 7", "expected at least"),
        ("states = 1", "states = -1", "expected at least"),
        ("dl.yield %3, %3 : tensor<3xf32>, tensor<3xf32>", "dl.yield %3 : tensor<3xf32>", "a body yields"),
    ],
)  # fmt: skip
def test_invalid_scans_are_rejected(right: str, wrong: str, message: str) -> None:
    assert right in RECURRENCE
    with pytest.raises(VerifyException, match=message):
        parsed(RECURRENCE.replace(right, wrong))
