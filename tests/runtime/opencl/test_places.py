"""Where arrays begin in buffers: wherever it is, at what kernels take for granted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.runtime.opencl.devices import all_devices
from dlc.runtime.opencl.program import Launcher, OpenCLProgram
from dlc.runtime.program.execute import Held, at
from dlc.runtime.program.host_program import Launch

pytestmark = pytest.mark.skipif(not all_devices(), reason="no OpenCL device")

RNG = np.random.default_rng(0)
W = RNG.standard_normal((32, 32), np.float32) / 6
X = RNG.standard_normal((40, 65), np.float32)


class Places(Launcher):
    """Notes where the arguments of launches begin that have so many bytes."""

    def __init__(self) -> None:
        self.found: list[tuple[int, int]] = []

    def launch(self, program: OpenCLProgram, launch: Launch, held: list[Held]) -> None:
        if launch.kernel is not None:
            places = (at(held, place) for place in launch.arguments)
            self.found += [(offset, size) for (_, offset), size in zip(places, launch.sizes, strict=True)]
        super().launch(program, launch, held)


def rows(x: Any) -> Any:
    """A part of what each step makes is read by another kernel, and elements are 260 bytes apart."""

    def step(total: Any, row: Any) -> Any:
        made = dnp.tanh(row + total[0])
        return dnp.tanh(made[32:64] @ W), made

    return lax.scan(step, dnp.zeros(32, np.float32), x)


def last(x: Any) -> Any:
    """A part of the last state, which is an element of what the steps make."""

    def step(state: Any, row: Any) -> Any:
        state = dnp.tanh(row + state)
        return state, state

    state, made = lax.scan(step, dnp.zeros(65, np.float32), x)
    return dnp.tanh(state[32:64] @ W), made


def nested(x: Any) -> Any:
    """Elements of elements, of 52 bytes."""

    def outer(state: Any, row: Any) -> Any:
        return lax.scan(lambda s, part: (dnp.tanh(part + s), s * part), state, row.reshape(5, 13))

    return lax.scan(outer, dnp.ones(13, np.float32), x)


def chosen(x: Any) -> Any:
    """What a branch makes is an element, of which a part is read."""

    def step(total: Any, row: Any) -> Any:
        made = lax.cond(row[0] > 0, lambda: dnp.tanh(row + total[0]), lambda: dnp.exp(row - 4))
        return dnp.tanh(made[32:64] @ W), made

    return lax.scan(step, dnp.zeros(32, np.float32), x)


def chosen_parts(x: Any) -> Any:
    """As `chosen`, and the part is read inside of the branch."""

    def step(total: Any, row: Any) -> Any:
        def then() -> Any:
            made = dnp.tanh(row + total[0])
            return dnp.tanh(made[32:64] @ W), made

        return lax.cond(row[0] > 0, then, lambda: (total + 1, dnp.exp(row - 4)))

    return lax.scan(step, dnp.zeros(32, np.float32), x)


@pytest.mark.parametrize("target", ["opencl", "opencl:gpu", "opencl:small"])
@pytest.mark.parametrize("function", [rows, last, nested, chosen, chosen_parts])
def test_arrays_begin_at_what_kernels_take_for_granted(function: Callable[..., Any], target: str) -> None:
    model: Any = dlc.jit(function, target=target).lower(X).compile()
    places = Places()
    results = model.run_unchecked.__self__.run_by([X], places)
    assert all(not offset % min(64, size & -size) for offset, size in places.found)
    wanted = dlc.jit(function, target="reference")(X)
    flat = [array for part in wanted for array in (part if isinstance(part, tuple) else (part,))]
    for got, want in zip(results, flat, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
