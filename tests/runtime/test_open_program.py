"""Binding the sizes of calls: shapes, places and numbers; and launches that are no parts of the buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from dlc.arrays import TensorInfo
from dlc.dims import Dim, Range, parse
from dlc.errors import DlcError, ModelError, ShapeError
from dlc.runtime.host_program import Instruction, OpenKernel, OpenLaunch, walk
from dlc.runtime.open_program import Binder, OpenProgram, resolved

N = Dim.symbol("N")
F32 = np.dtype(np.float32)
# Of rows of four, the kernel `k` reads some and writes one more. Slots: input 2, output 3, weight 4, regions 5 and 6.
KERNELS = {"k": OpenKernel(1, (16 * Dim.symbol("s0"), 16 * Dim.symbol("s0") + 16))}
PROGRAM = OpenProgram(
    (TensorInfo("x", (N, 4), F32),),
    (TensorInfo("y", (N + 2, 4), F32),),
    (TensorInfo("w", (4,), F32),),
    {"N": Range(0, 1000)},
    ((16 * N + 16, 256), (48,)),
    (
        OpenLaunch("k", ((2, 0), (5, 0)), (N,)),
        OpenLaunch("k", ((5, 0), (3, 0)), (N + 1,)),
        OpenLaunch(None, ((6, 0), (4, 0)), (16,)),
    ),
)


def binder(program: OpenProgram = PROGRAM, kernels: Mapping[str, OpenKernel] = KERNELS) -> Binder:
    instructions = resolved(program.instructions, kernels)
    launches = [i for i, _ in walk(instructions) if isinstance(i, OpenLaunch)]
    return Binder(program, instructions, [size for launch in launches for size in launch.numbers])


def test_what_sizes_make_of_a_program() -> None:
    bind = binder()
    small, large = bind([(2, 4)]), bind([(100, 4)])
    assert (small.outputs, small.starts, small.arena_bytes, small.numbers) == (((4, 4),), (0, 256), 320, (2, 3, 16))
    assert (large.outputs, large.starts, large.arena_bytes, large.numbers) == (((102, 4),), (0, 1664), 1728, (100, 101, 16))


def test_a_launch_for_known_sizes() -> None:
    launch = cast(OpenLaunch, PROGRAM.instructions[1]).of(KERNELS).at({"N": 4})
    assert (launch.arguments, launch.sizes, launch.numbers) == (((5, 0), (3, 0)), (80, 96), (5,))


@pytest.mark.parametrize("shape", [(3,), (3, 5), (1001, 4), (3, 4, 1)])
def test_shapes_that_do_not_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="x: float32"):
        binder()([shape])


def launching(*instructions: Instruction) -> OpenProgram:
    return replace(PROGRAM, instructions=instructions)


HOSTILE: dict[str, OpenProgram] = {
    "a part that ends behind an input": launching(OpenLaunch("k", ((2, 16), (5, 0)), (N,))),
    "a part that ends behind a region": launching(OpenLaunch("k", ((2, 0), (6, 0)), (N,))),
    "a part that ends behind an output where the input is short": launching(OpenLaunch(None, ((5, 0), (3, 0)), (250,))),
    "a part that ends behind a weight": launching(OpenLaunch("k", ((4, 0), (3, 0)), (N + 1,))),
    "more rows than there are": launching(OpenLaunch("k", ((2, 0), (5, 0)), (N * N,))),
    "rows below none": launching(OpenLaunch("k", ((2, 0), (5, 0)), (1 - N,))),
    "an arena that is no slot of a region": launching(OpenLaunch("k", ((1, 0), (5, 0)), (N,))),
    "a slot beyond the last": launching(OpenLaunch("k", ((7, 0), (5, 0)), (N,))),
    "nothing": launching(OpenLaunch("k", ((0, 0), (5, 0)), (N,))),
    "too few sizes": launching(OpenLaunch("k", ((2, 0), (5, 0)), ())),
    "too many arguments": launching(OpenLaunch("k", ((2, 0), (5, 0), (3, 0)), (N,))),
    "no kernel": launching(OpenLaunch("l", ((2, 0), (5, 0)), (N,))),
    "a size of no input": launching(OpenLaunch("k", ((2, 0), (5, 0)), (parse("M"),))),
    "a number that is no address": launching(OpenLaunch("k", ((2, 0), (5, 0)), (N * (1 << 62),))),
    "an output below nothing": replace(PROGRAM, outputs=(TensorInfo("y", (2 - N, 2 - N), F32),)),
    "a region below nothing": replace(PROGRAM, regions=((16 - 16 * N, 10_000), (48,))),
    "a division by nothing": launching(OpenLaunch(None, ((5, 0), (3, 0)), (16 // (N - 5),))),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_programs_are_refused(name: str) -> None:
    with pytest.raises(DlcError):
        bind = binder(HOSTILE[name])
        for n in (0, 1, 5, 100):
            bind([(n, 4)])


def test_a_kernel_that_makes_more_of_its_sizes() -> None:
    rows: Any = Dim.symbol("s0")
    for bytes_ in ((16 * rows * rows, 16 * rows + 16), (16 * rows, 16 * rows - 32), (16 * rows + 1, 0)):
        bind = binder(kernels={"k": OpenKernel(1, bytes_)})
        with pytest.raises(ModelError):
            for n in (5, 1):
                bind([(n, 4)])
