"""Array offsets in buffers have the alignment that kernels assume."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import lax
from dlc.runtime.opencl.commands import CommandList
from dlc.runtime.opencl.devices import all_devices
from dlc.runtime.opencl.program import Launcher
from dlc.runtime.program.host_program import Launch
from dlc.runtime.program.interpreter import BufferOffset, resolve_ref

pytestmark = pytest.mark.skipif(not all_devices(), reason="no OpenCL device")

RNG = np.random.default_rng(0)
W = RNG.standard_normal((32, 32), np.float32) / 6
X = RNG.standard_normal((40, 65), np.float32)


class Places(Launcher):
    """Records the offsets of all launch arguments with their sizes."""

    def __init__(self) -> None:
        self.found: list[tuple[int, int]] = []

    def launch(self, commands: CommandList, launch: Launch, slot_values: list[BufferOffset]) -> None:
        if launch.kernel is not None:
            refs = (resolve_ref(slot_values, ref) for ref in launch.arguments)
            self.found += [(offset, size) for (_, offset), size in zip(refs, launch.static_sizes, strict=True)]
        super().launch(commands, launch, slot_values)


def rows(x: Any) -> Any:
    """Another kernel reads a slice of each step's result; elements are 260 bytes apart."""

    def step(total: Any, row: Any) -> Any:
        made = dnp.tanh(row + total[0])
        return dnp.tanh(made[32:64] @ W), made

    return lax.scan(step, dnp.zeros(32, np.float32), x)


def last(x: Any) -> Any:
    """A slice of the final state, which is an element of the scan's output."""

    def step(state: Any, row: Any) -> Any:
        state = dnp.tanh(row + state)
        return state, state

    state, made = lax.scan(step, dnp.zeros(65, np.float32), x)
    return dnp.tanh(state[32:64] @ W), made


def nested(x: Any) -> Any:
    """Nested scans, with elements of 52 bytes."""

    def outer(state: Any, row: Any) -> Any:
        return lax.scan(lambda s, part: (dnp.tanh(part + s), s * part), state, row.reshape(5, 13))

    return lax.scan(outer, dnp.ones(13, np.float32), x)


def chosen(x: Any) -> Any:
    """The result of a branch is an element, of which a slice is read."""

    def step(total: Any, row: Any) -> Any:
        made = lax.cond(row[0] > 0, lambda: dnp.tanh(row + total[0]), lambda: dnp.exp(row - 4))
        return dnp.tanh(made[32:64] @ W), made

    return lax.scan(step, dnp.zeros(32, np.float32), x)


def chosen_parts(x: Any) -> Any:
    """As `chosen`, with the slice read inside of the branch."""

    def step(total: Any, row: Any) -> Any:
        def then() -> Any:
            made = dnp.tanh(row + total[0])
            return dnp.tanh(made[32:64] @ W), made

        return lax.cond(row[0] > 0, then, lambda: (total + 1, dnp.exp(row - 4)))

    return lax.scan(step, dnp.zeros(32, np.float32), x)


@pytest.mark.parametrize("target", ["opencl", "opencl:gpu", "opencl:small"])
@pytest.mark.parametrize("function", [rows, last, nested, chosen, chosen_parts])
def test_kernel_arguments_are_aligned(function: Callable[..., Any], target: str) -> None:
    model: Any = dlc.jit(function, target=target).lower(X).compile()
    refs = Places()
    results = model.run_unchecked.__self__.run_with([X], refs)
    assert all(not offset % min(64, size & -size) for offset, size in refs.found)
    wanted = dlc.jit(function, target="reference")(X)
    flat = [array for part in wanted for array in (part if isinstance(part, tuple) else (part,))]
    for got, want in zip(results, flat, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
