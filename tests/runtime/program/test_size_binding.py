"""Binding the sizes of calls: shapes, offsets and numbers; and launches that are out of bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlc.arrays import TensorInfo
from dlc.errors import DlcError, ModelError, ShapeError
from dlc.runtime.program.host_program import (
    Branch,
    BufferRef,
    CarriedSlot,
    HostProgram,
    Instruction,
    KernelSignature,
    Launch,
    Loop,
    LoopSlot,
    While,
)
from dlc.runtime.program.size_binding import SizeBinder
from dlc.runtime.program.size_operations import SizeOperations
from dlc.shapes.dims import Dim, Size
from dlc.shapes.parsing import parse_size
from dlc.shapes.ranges import SizeRange

N = Dim.symbol("N")
F32 = np.dtype(np.float32)
# Of rows of four, the kernel `k` reads some and writes one more. Slots: input 2, output 3, weight 4, regions 5 and 6.
KERNELS = {"k": KernelSignature(1, (16 * Dim.symbol("s0"), 16 * Dim.symbol("s0") + 16))}


def launch(
    kernel: str | None,
    arguments: tuple[BufferRef, ...],
    size_values: tuple[Size, ...],
    kernels: Mapping[str, KernelSignature] = KERNELS,
) -> Launch:
    return Launch.of(kernel, arguments, size_values, kernels)


PROGRAM = HostProgram(
    (TensorInfo("x", (N, 4), F32),),
    (TensorInfo("y", (N + 2, 4), F32),),
    (TensorInfo("w", (4,), F32),),
    (
        launch("k", ((2, 0), (5, 0)), (N,)),
        launch("k", ((5, 0), (3, 0)), (N + 1,)),
        launch(None, ((6, 0), (4, 0)), (16,)),
    ),
    regions=((16 * N + 16, 256), (48,)),
    ranges={"N": SizeRange(0, 1000)},
)


def binder(program: HostProgram = PROGRAM) -> SizeBinder:
    operations = SizeOperations(program)
    offsets, arena_bytes = operations.arena_layout()
    sizes = [size for each in program.launches for size in each.size_values]
    return SizeBinder(operations, arena_bytes, [*(k for _, k in offsets), *map(operations.code.operation_of, sizes)])


def test_binding_sizes() -> None:
    bind = binder()
    small, large = bind([(2, 4)]), bind([(100, 4)])
    assert (small.outputs, small.arena_bytes, small.values) == (((4, 4),), 320, (0, 256, 2, 3, 16))
    assert (large.outputs, large.arena_bytes, large.values) == (((102, 4),), 1728, (0, 1664, 100, 101, 16))


def test_regions_follow_the_buffers_with_fixed_offsets() -> None:
    bound = binder(replace(PROGRAM, arena_bytes=100))([(2, 4)])
    assert (bound.arena_bytes, bound.values[:2]) == (448, (128, 384))


def test_specializing_a_launch() -> None:
    specialized = PROGRAM.launches[1].specialize({"N": 4})
    assert (specialized.arguments, specialized.sizes, specialized.size_values) == (((5, 0), (3, 0)), (80, 96), (5,))


@pytest.mark.parametrize("shape", [(3,), (3, 5), (1001, 4), (3, 4, 1)])
def test_mismatched_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="x: float32"):
        binder()([shape])


def launching(*instructions: Instruction) -> HostProgram:
    return replace(PROGRAM, instructions=instructions)


HOSTILE: dict[str, HostProgram] = {
    "a part that ends after an input": launching(launch("k", ((2, 16), (5, 0)), (N,))),
    "a part that ends after a region": launching(launch("k", ((2, 0), (6, 0)), (N,))),
    "a part that ends after an output where the input is short": launching(launch(None, ((5, 0), (3, 0)), (250,))),
    "a part that ends after a weight": launching(launch("k", ((4, 0), (3, 0)), (N + 1,))),
    "more rows than there are": launching(launch("k", ((2, 0), (5, 0)), (N * N,))),
    "rows below none": launching(launch("k", ((2, 0), (5, 0)), (1 - N,))),
    "an arena that is not a slot of a region": launching(launch("k", ((1, 0), (5, 0)), (N,))),
    "a slot beyond the last": launching(launch("k", ((7, 0), (5, 0)), (N,))),
    "nothing": launching(launch("k", ((0, 0), (5, 0)), (N,))),
    "a size of no input": launching(launch("k", ((2, 0), (5, 0)), (parse_size("M"),))),
    "a number that is not an address": launching(launch("k", ((2, 0), (5, 0)), (N * (1 << 62),))),
    "an output below nothing": replace(PROGRAM, outputs=(TensorInfo("y", (2 - N, 2 - N), F32),)),
    "a region below nothing": replace(PROGRAM, regions=((16 - 16 * N, 10_000), (48,))),
    "a division by nothing": launching(launch(None, ((5, 0), (3, 0)), (16 // (N - 5),))),
}


# Row by row of the input to the output, of which the first row stays, with a state in the region 5 that is then the last row.
ROWS = Loop(
    N,
    (CarriedSlot(7, (5, 0), (8, 0)),),
    (LoopSlot(8, (2, 0), 16), LoopSlot(9, (3, 16 * N), -16)),
    (launch(None, ((9, 0), (8, 0)), (16,)), launch(None, ((9, 0), (7, 0)), (16,))),
)
LAST = launch(None, ((6, 0), (7, 0)), (16,))
LOOPING = replace(PROGRAM, instructions=(ROWS, LAST), loop_slots=3)


def test_a_loop_within_its_buffers() -> None:
    for n in (0, 1, 2, 100):
        binder(LOOPING)([(n, 4)])


def looping(*instructions: Instruction, **changes: Any) -> HostProgram:
    return replace(LOOPING, instructions=(replace(ROWS, **changes), *instructions), loop_slots=4)


def element(first: tuple[int, Size], step: Size, slot: int = 8) -> dict[str, Any]:
    return {"elements": (LoopSlot(slot, first, step), ROWS.elements[1])}


HOSTILE |= {
    "a step more than there are rows": looping(count=N + 3),
    "steps below none": looping(count=N - 5),
    "more steps than an input has rows": looping(count=N * N),
    "a larger step of an element": looping(**element((2, 0), 16 * N)),
    "an element that begins behind": looping(**element((2, 16 * N), 16)),
    "an element that goes back from the first": looping(**element((2, 0), -16)),
    "an element that sets a region": looping(**element((2, 0), 16, slot=5)),
    "an element that sets a slot beyond the last": looping(**element((2, 0), 16, slot=11)),
    "an element of nothing": looping(**element((0, 0), 16)),
    "an element of a carried slot": looping(**element((7, 0), 16)),
    "an element after the last": looping(launch(None, ((6, 0), (8, 0)), (16,))),
    "a row after the last one that was found": looping(launch(None, ((6, 0), (7, 16)), (16,))),
    "a state that moves on": looping(carried=(CarriedSlot(7, (5, 0), (7, 16)),)),
    "a loop in a loop that sets its slot": looping(body=(replace(ROWS, carried=()), *ROWS.body)),
    "a loop in a loop of as many steps": looping(
        body=(Loop(N, (), (LoopSlot(10, (8, 0), 16),), (launch(None, ((6, 0), (10, 0)), (16,)),)),)
    ),
    "a condition behind a buffer": replace(LOOPING, instructions=(Branch((2, 16 * 1000), (), ()),)),
    "a condition of a loop behind a buffer": replace(LOOPING, instructions=(While((5, 0), (2, 1 << 20), (), ()),)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_malicious_programs_are_rejected(name: str) -> None:
    with pytest.raises(DlcError):
        bind = binder(HOSTILE[name])
        for n in (0, 1, 5, 100):
            bind([(n, 4)])


@pytest.mark.parametrize(
    ("kernel", "arguments", "size_values"),
    [
        ("k", ((2, 0), (5, 0)), ()),
        ("k", ((2, 0), (5, 0), (3, 0)), (N,)),
        ("l", ((2, 0), (5, 0)), (N,)),
        (None, ((2, 0),), (4,)),
    ],
)
def test_launches_match_the_signatures_of_kernels(
    kernel: str | None, arguments: tuple[BufferRef, ...], size_values: tuple[Size, ...]
) -> None:
    with pytest.raises(ModelError, match="a launch of"):
        launch(kernel, arguments, size_values)


def test_a_kernel_with_larger_buffers() -> None:
    rows: Any = Dim.symbol("s0")
    for bytes_ in ((16 * rows * rows, 16 * rows + 16), (16 * rows, 16 * rows - 32), (16 * rows + 1, 0)):
        kernels = {"k": KernelSignature(1, bytes_)}
        launches = (launch(each.kernel, each.arguments, each.size_values, kernels) for each in PROGRAM.launches)
        with pytest.raises(ModelError):
            bind = binder(launching(*launches))
            for n in (5, 1):
                bind([(n, 4)])
