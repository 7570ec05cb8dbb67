"""Verify the alignment of kernel arguments, for programs from untrusted files: kernels use aligned vector loads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import gcd

from dlc.errors import ModelError
from dlc.runtime.program.host_program import Instruction, Launch, Loop, While, walk
from dlc.runtime.program.kernel_text import required_alignment
from dlc.shapes.dims import Dim, Size


def require_alignment(instructions: Sequence[Instruction]) -> None:
    """Raise ModelError unless every kernel argument has the alignment that the kernel assumes, in aligned buffers.

    Slots are analyzed independent of instruction order, by a common divisor of their offsets.
    """
    divisors = defaultdict[int, int](int)  # Common divisors of the offsets in slots; 0 is the start of a buffer.
    loops = [i for i, _ in walk(instructions) if isinstance(i, Loop | While)]

    def alignment_of(ref: tuple[int, Size]) -> int:
        return gcd(divisors[ref[0]], _divisor(ref[1]))

    previous = None
    while previous != divisors:
        previous = divisors.copy()
        for loop in loops:
            for c in loop.carried:
                divisors[c.slot] = gcd(divisors[c.slot], alignment_of(c.first), alignment_of(c.following))
            for element in loop.elements if isinstance(loop, Loop) else ():
                divisors[element.slot] = gcd(alignment_of(element.first), _divisor(element.step))
    for launch, _ in walk(instructions):
        if not isinstance(launch, Launch) or launch.kernel is None:
            continue
        for ref, size in zip(launch.arguments, launch.sizes, strict=True):
            if alignment_of(ref) % (expected := required_alignment(size)):
                raise ModelError(
                    f"a launch of {launch.kernel}: an array of {size} bytes is aligned to {alignment_of(ref)} bytes, "
                    f"expected {expected}"
                )


def _divisor(size: Size) -> int:
    """Return a number that divides a size for all values of its symbols."""
    return gcd(*Dim.lift(size).terms.values())
