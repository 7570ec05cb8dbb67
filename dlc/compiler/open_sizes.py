"""Whether one compilation may serve every size that a program leaves open.

Types of symbolic sizes say what holds as long as nothing is clamped, repeated or refused: `x[2:5]` has three rows unless
`x` has fewer than five. So the types are inferred again for sizes from all over the ranges, small and large, with and
without common factors, equal and different: where an op refuses one, or gives another type than the symbols promised, the
program is compiled for known sizes, which says what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dlc.compiler.program import Program
from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.control import Control
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.ranges import ranges_of
from dlc.dialects.host import entry_of
from dlc.dims import Dim, Range, substitute
from dlc.errors import DlcError
from dlc.ir import TensorType

# Around what is small, what divides, and where a threshold is likely; the last is beyond any.
_SAMPLES = (0, 1, 2, 3, 5, 8, 31, 96, 1_000_003)


def reason_for_known_sizes(program: Program) -> str | None:
    """Why a program with symbolic sizes has to be compiled for known ones; None if one compilation may serve all."""
    main = entry_of(program.module)
    if any(isinstance(op, DataDependent | Control) for op in main.walk()):
        return "it has loops or branches, or sizes that are data"
    named = {str(size) for info in program.inputs for size in info.shape}
    symbols = sorted({s for info in program.inputs for size in info.shape for s in Dim.lift(size).symbols()})
    missing = [s for s in symbols if s not in named]
    if missing:
        return f"the size {missing[0]} is none of an input by itself"
    reasons = (_difference(program, sizes) for sizes in _samples(symbols, ranges_of(program.module)))
    return next((reason for reason in reasons if reason is not None), None)


def _samples(symbols: list[str], ranges: Mapping[str, Range]) -> Iterator[dict[str, int]]:
    """Sizes of the symbols, each in its range: those of several symbols once alike, and once not."""
    values = {s: _within(ranges.get(s, Range())) for s in symbols}
    count = max(map(len, values.values()), default=0)
    for apart in (0, 1) if len(symbols) > 1 else (0,):
        for k in range(count):
            yield {s: own[(k + apart * place) % len(own)] for place, (s, own) in enumerate(values.items())}


def _within(range_: Range) -> list[int]:
    ends = [range_.low, *([] if range_.high is None else [range_.high])]
    return sorted({*ends, *(n for n in _SAMPLES if n in range_)})


def _difference(program: Program, sizes: Mapping[str, int]) -> str | None:
    """What is not as the symbols promise for these sizes."""
    said = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    try:
        bound = program.with_sizes(sizes)
    except DlcError as error:
        return f"it does not hold for all sizes: {error}"
    except (ArithmeticError, ValueError) as error:
        return f"it does not hold for all sizes: with {said}: {error}"
    for op, known in zip(program.module.walk(), bound.module.walk(), strict=True):
        for promised, result in zip(op.results, known.results, strict=True):
            if isinstance(promised.type, TensorType):
                expected = tuple(substitute(size, sizes) for size in shape_of(promised))
                if expected != shape_of(result):
                    return f"{op.name} at {op.location} gives {shape_of(result)} with {said}, where {expected} was expected"
    return None
