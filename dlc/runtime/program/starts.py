"""Where arrays begin in buffers: kernels load vectors from what they take for granted, and what a file says is not trusted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import gcd

from dlc.dims import Dim, Size
from dlc.errors import ModelError
from dlc.runtime.program.host_program import Instruction, Launch, Loop, OpenLaunch, While, walk
from dlc.runtime.program.kernel_text import start_of


def require_starts(instructions: Sequence[Instruction]) -> None:
    """Raises ModelError unless every array that a kernel is given begins where the kernel expects it, in buffers that do.

    What slots hold is followed without regard to the order of instructions, in what divides the bytes before it.
    """
    divisors = defaultdict[int, int](int)  # of where slots point; 0 is the start of a buffer, which all divide
    moved = [i for i, _ in walk(instructions) if isinstance(i, Loop | While)]

    def at(place: tuple[int, Size]) -> int:
        return gcd(divisors[place[0]], _divisor(place[1]))

    before = None
    while before != divisors:
        before = divisors.copy()
        for loop in moved:
            for c in loop.carried:
                divisors[c.slot] = gcd(divisors[c.slot], at(c.first), at(c.following))
            for element in loop.elements if isinstance(loop, Loop) else ():
                divisors[element.slot] = gcd(at(element.first), _divisor(element.step))
    for launch, _ in walk(instructions):
        if not isinstance(launch, Launch | OpenLaunch) or launch.kernel is None:
            continue
        for place, size in zip(launch.arguments, launch.sizes, strict=True):
            if at(place) % (expected := start_of(size)):
                raise ModelError(
                    f"a launch of {launch.kernel}: an array of {size} bytes begins at a multiple of {at(place)} bytes, not of "
                    f"{expected}"
                )


def _divisor(size: Size) -> int:
    """What divides a size whatever its symbols are."""
    return gcd(*Dim.lift(size).terms.values())
