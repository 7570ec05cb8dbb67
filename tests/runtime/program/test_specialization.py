"""Specialization of programs for the sizes of a call."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc.errors import ShapeError
from dlc.runtime.program.bounds import BoundsChecks
from dlc.runtime.program.host_program import Branch, CarriedSlot, HostProgram, Launch, Loop, LoopSlot, While
from dlc.runtime.program.specialization import ProgramSpecializer
from dlc.shapes.dims import Dim
from tests.runtime.program.test_size_binding import PROGRAM, N, launch


def at(rows: int, alignment: int = 64, program: HostProgram = PROGRAM) -> HostProgram:
    host = ProgramSpecializer(program, alignment)([(rows, 4)])
    assert BoundsChecks.of(host) == BoundsChecks((), ())
    return host


def test_launches_are_specialized_and_regions_become_arena_offsets() -> None:
    host = at(3, alignment=128)
    assert ([info.shape for info in (*host.inputs, *host.outputs, *host.weights)], host.slots) == ([(3, 4), (5, 4), (4,)], 5)
    assert (host.arena_bytes, host.instructions) == (
        384,
        (
            Launch("k", ((2, 0), (1, 0)), (48, 64), (3,)),
            Launch("k", ((1, 0), (3, 0)), (64, 80), (4,)),
            Launch(None, ((1, 256), (4, 0)), (16, 16), (16,)),
        ),
    )


def test_loops_are_specialized_and_slots_are_renumbered() -> None:
    one = launch("k", ((7, 0), (8, 0)), (Dim.lift(1).simplified(),))
    loop = Loop(N, (CarriedSlot(8, (5, 0), (8, 0)),), (LoopSlot(7, (2, 0), 16),), (one,))
    program = replace(PROGRAM, instructions=(loop, Branch((6, 4), (While((6, 0), (6, 1), (), ()),), ())), loop_slots=2)
    known = Launch("k", ((5, 0), (6, 0)), (16, 32), (1,))
    for rows, (second, _) in ((0, (256, 0)), (40, (704, 0))):
        assert at(rows, program=program).instructions == (
            Loop(rows, (CarriedSlot(6, (1, 0), (6, 0)),), (LoopSlot(5, (2, 0), 16),), (known,)),
            Branch((1, second + 4), (While((1, second), (1, second + 1), (), ()),), ()),
        )


def test_a_size_outside_of_its_range_is_rejected() -> None:
    with pytest.raises(ShapeError, match=r"N = 1001; expected a size in the declared range 0\.\.1000"):
        at(1001)
