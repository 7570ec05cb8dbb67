"""Alignment checks of kernel arguments, including loop slots."""

from __future__ import annotations

import pytest

from dlc.errors import ModelError
from dlc.runtime.program.alignment import require_alignment
from dlc.runtime.program.host_program import Branch, CarriedSlot, Instruction, Launch, Loop, LoopSlot, While
from dlc.runtime.program.kernel_text import required_alignment
from dlc.shapes.dims import Dim, Size

N = Dim.symbol("N")


def launch(slot: int, size: int, offset: int = 0) -> Launch:
    return Launch("k", ((slot, offset),), (size,))


@pytest.mark.parametrize(
    ("bytes", "start"), [(0, 64), (4, 4), (52, 4), (96, 32), (128, 64), (N * 8, 8), (N * 8 + 4, 4), (N * N * 64, 64)]
)
def test_the_required_alignment_divides_the_size(bytes: Size, start: int) -> None:
    assert required_alignment(bytes) == start


ELEMENTS = (LoopSlot(5, (1, 128), 52),)
FINE: dict[str, list[Instruction]] = {
    "a part": [launch(1, 640, 64), launch(1, 48, 16), Launch(None, ((1, 3), (2, 5)), (7, 7), (7,))],
    "elements": [Loop(3, (), ELEMENTS, (launch(5, 52),))],
    "elements of elements": [Loop(3, (), ELEMENTS, (Loop(13, (), (LoopSlot(6, (5, 0), 4),), (launch(6, 4),)),))],
    "sizes of a call": [Loop(N, (), (LoopSlot(5, (1, N * 64), -N * 32),), (Launch("k", ((5, 0),), (N * 32,), (N,)),))],
}
WRONG: dict[str, list[Instruction]] = {
    "a part": [launch(1, 640, 32)],
    "elements": [Loop(3, (), ELEMENTS, (launch(5, 64),))],
    "a part of an element": [Loop(3, (), ELEMENTS, (launch(5, 32, 16),))],
    "what is handed on": [
        Loop(3, (CarriedSlot(6, (1, 0), (7, 0)), CarriedSlot(7, (1, 0), (5, 0))), ELEMENTS, (launch(6, 64),))
    ],
    "after the loop": [While((1, 0), (1, 0), (CarriedSlot(6, (1, 0), (6, 4)),), ()), launch(6, 64)],
    "in a branch": [Branch((1, 0), (), (launch(1, 64, 4),))],
    "sizes of a call": [Loop(N, (), (LoopSlot(5, (1, 0), N * 8),), (Launch("k", ((5, 0),), (N * 16,), (N,)),))],
}


@pytest.mark.parametrize("what", FINE)
def test_valid_programs(what: str) -> None:
    require_alignment(FINE[what])


@pytest.mark.parametrize("what", WRONG)
def test_invalid_programs(what: str) -> None:
    with pytest.raises(ModelError, match=r"a launch of k: an array of .* bytes is aligned to \d+ bytes, expected \d+"):
        require_alignment(WRONG[what])
