"""`stack-next-states`: a scan writes its states into the stack that holds the previous states of all steps."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.backends.reference import evaluate
from dlc.dialects.dl.programs.control import ScanOp
from dlc.dialects.registry import make_context
from dlc.instrument.verify import verify
from dlc.ir import Context, ModuleOp, parse_module
from dlc.passes.dl.programs.stack_next_states import StackNextStatesPass
from dlc.target import resolve
from dlc.weights import WeightStore

N = 5


def _program(next_state: str, reverse: str, size: int = 16) -> ModuleOp:
    """Stack the states before each step."""
    t, sequence = f"tensor<{size}xf32>", f"tensor<{N}x{size}xf32>"
    text = f"""
    func.func @main(%s: {t}, %xs: {sequence}) -> ({t}, {sequence}) {{
      %0, %1 = dl.scan %s, %xs {{states = 1 : i64, length = array<i64: {N}>, reverse = {reverse}}} : ({t}, {sequence}) -> ({t}, {sequence}) {{
      ^bb0(%a: {t}, %x: {t}):
        %2 = dl.sub %x, %a : ({t}, {t}) -> {t}
        dl.yield {next_state}, %a : {t}, {t}
      }}
      func.return %0, %1 : {t}, {sequence}
    }}
    """
    return parse_module(make_context(), text)


@pytest.mark.parametrize("reverse", ["true", "false"])
def test_previous_states_are_a_slice_of_all_states(reverse: str) -> None:
    module, inputs = _program("%2", reverse), [np.arange(16, dtype=np.float32), np.ones((N, 16), np.float32).cumsum(0)]
    expected = evaluate(module, inputs, WeightStore())
    StackNextStatesPass(resolve("cpu")).apply(Context(), module)
    verify(module)
    scan = next(op for op in module.walk() if isinstance(op, ScanOp))
    assert scan.block.last_op is not None and len(set(scan.block.last_op.operands)) == 1
    for got, want in zip(evaluate(module, inputs, WeightStore()), expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_states_that_no_op_computes_are_stacked_as_they_are() -> None:
    module = _program("%x", "false")
    before = str(module)
    StackNextStatesPass(resolve("cpu")).apply(Context(), module)
    assert str(module) == before


@pytest.mark.parametrize(
    ("reverse", "target", "is_stacked"), [("false", "cpu", True), ("true", "cpu", False), ("false", "opencl:gpu", False)]
)
def test_states_of_unaligned_size_are_stacked_if_views_are_aligned(reverse: str, target: str, is_stacked: bool) -> None:
    module = _program("%2", reverse, size=9)
    before = str(module)
    StackNextStatesPass(resolve(target)).apply(Context(), module)
    assert (str(module) != before) == is_stacked


@pytest.mark.parametrize(("reverse", "size"), [(False, 32), (True, 32), (False, 7)])
def test_a_trajectory_with_its_initial_state_is_not_copied(reverse: bool, size: int) -> None:
    def trajectory(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        def step(x: np.ndarray, _: None) -> tuple[np.ndarray, np.ndarray]:
            x = dnp.tanh(x @ w)
            return x, x

        states = lax.scan(step, x, None, length=20, reverse=reverse)[1]
        return dnp.concatenate([states, x[None]] if reverse else [x[None], states])

    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((size, size)).astype(np.float32) * 0.1 for _ in range(2))
    states = [x]
    for _ in range(20):
        states.append(np.tanh(states[-1] @ w))
    compiled = dlc.jit(trajectory, cache=False)
    np.testing.assert_allclose(compiled(x, w), np.stack(states[::-1] if reverse else states), rtol=1e-4, atol=1e-5)
    assert "@concat" not in compiled.lower(x, w).as_text("fusion")
