"""Loops and branches with symbolic sizes: one compilation serves all sizes, also when loaded without a compiler."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.backends.reference import evaluate
from dlc.compiler import Program, compile
from dlc.instrument.report import Report
from dlc.runtime.opencl.devices import all_devices
from tests.shapes.stages import agree, at_each_stage

W = np.random.default_rng(0).standard_normal((4, 4), np.float32) / 2
SIZES = ((1, 1), (0, 3), (3, 0), (0, 0), (2, 7), (40, 5), (9, 2))


def recurrence(x: Any, reverse: bool = False) -> Any:
    """A state that is an element of the result sequence, and one in buffers of its own."""

    def step(carry: Any, row: Any) -> Any:
        h, total = carry
        h = dnp.tanh(h @ W + row)
        return (h, total + h), (h, h * total)

    return lax.scan(step, (x.sum(axis=0), x.sum(axis=0) * 2), x, reverse=reverse)


def backward(x: Any) -> Any:
    """A scan from the last element to the first."""
    return recurrence(x, reverse=True)


def nested(x: Any) -> Any:
    """A loop over all elements for each element, with a branch."""

    def outer(carry: Any, row: Any) -> Any:
        def inner(state: Any, other: Any) -> Any:
            state = lax.cond((row * other).sum() > 0, lambda a, b: a + b, lambda a, b: a - b * 0.5, state, other)
            return state, row * state

        last, made = lax.scan(inner, row, x)
        return carry + last, made

    return lax.scan(outer, x.sum(axis=0), x)


def until(x: Any) -> Any:
    """A loop whose number of iterations is data-dependent."""
    return lax.while_loop(lambda y: (y * y).sum() > 1, lambda y: dnp.tanh(y) * 0.5, x)


def branches(x: Any) -> Any:
    """Branches that write the same results, without ops between them."""
    return lax.cond(x.sum() > 0, lambda y: (dnp.exp(y), y.sum(axis=0)), lambda y: (y @ W, dnp.abs(y).sum(axis=0)), x)


FUNCTIONS = (recurrence, backward, nested, until, branches)


def lowered(function: Callable[..., Any]) -> Program:
    """Return the program of a function of an array [L, B, 4]."""
    return dlc.jit(dynamic={"x": {0: "L", 1: "B"}})(function).lower(np.zeros((2, 3, 4), np.float32)).program


def input_of_size(size: tuple[int, int]) -> Any:
    return np.random.default_rng(sum(size)).standard_normal((*size, 4), dtype=np.float32)


def expected(program: Program, size: tuple[int, int]) -> list[Any]:
    bound = program.with_sizes(dict(zip("LB", size, strict=True)))
    return list(evaluate(bound.module, [input_of_size(size)], bound.weights))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_stage_serves_all_sizes(function: Callable[..., Any]) -> None:
    program = lowered(function)
    wanted = {size: expected(program, size) for size in ((0, 2), (1, 1), (3, 2))}
    for module, weights in at_each_stage(program):
        for size, want in wanted.items():
            agree(evaluate(module, [input_of_size(size)], weights), want)


LOADED = """
import sys, numpy as np, dlc
model = dlc.load(sys.argv[1])
x = np.load(sys.argv[2])
np.savez(sys.argv[3], *model(x).values())
assert not {"xdsl", "onnx", "llvmlite"} & sys.modules.keys()
"""


@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_compilation_serves_all_sizes(function: Callable[..., Any], tmp_path: Path) -> None:
    report, program = Report(), lowered(function)
    model = compile(program, report=report)
    assert report.specialization_reason is None
    model.save(tmp_path / "model.dlc")
    loaded = dlc.load(tmp_path / "model.dlc")
    for size in SIZES:
        for m in (model, loaded):
            agree(m(input_of_size(size)).values(), expected(program, size))


@pytest.mark.skipif(not all_devices(), reason="no OpenCL device")
def test_a_device_serves_all_sizes() -> None:
    program, report = lowered(lambda x: (*nested(x), until(x), *branches(x))), Report()
    model = compile(program, "opencl", report=report)
    assert report.specialization_reason is None
    for size in ((1, 1), (0, 3), (3, 0), (9, 2)):
        agree(map(np.asarray, model(input_of_size(size)).values()), expected(program, size))


def test_a_saved_dynamic_loop_needs_no_compiler(tmp_path: Path) -> None:
    program = lowered(recurrence)
    compile(program).save(tmp_path / "model.dlc")
    np.save(tmp_path / "x.npy", input_of_size((7, 3)))
    paths = [str(tmp_path / name) for name in ("model.dlc", "x.npy", "y.npz")]
    subprocess.run([sys.executable, "-c", LOADED, *paths], check=True)
    agree(np.load(tmp_path / "y.npz").values(), expected(program, (7, 3)))
