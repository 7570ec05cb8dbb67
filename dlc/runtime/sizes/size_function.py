"""Polynomials of sizes as one function: what all calls compute from their sizes, in a few microseconds and without overflow.

    size_function(["N"], ((N, 64), N // 2 + 1, N // 2)) is

    def at(s0):
        v0 = s0 // 2
        v1 = v0 + 1
        return ((s0, 64,), v1, v0,)

Python's integers have no largest; so whatever was read from a file, a size is what its polynomial says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from dlc.dims import Atom, Dim, Monomial, Size
from dlc.errors import ModelError

# Sizes, in tuples in tuples.
Nest: TypeAlias = "Size | Sequence[Nest]"


def size_function(symbols: Sequence[str], nest: Nest) -> Callable[..., Any]:
    """The function from the sizes of `symbols`, in order, to `nest` in numbers.

    The function raises ZeroDivisionError where a divisor is 0. Raises ModelError for a size of another symbol.
    """
    writer = _Writer(symbols)
    result = writer.nest(nest)
    lines = [f"def at({', '.join(writer.symbols.values())}):", *writer.lines, f" return {result}"]
    functions: dict[str, Any] = {}
    # Nothing but what this module wrote is in it: names are its own, whatever symbols are called.
    exec("\n".join(lines), {"__builtins__": {}}, functions)
    return functions["at"]


class _Writer:
    """The lines of a function; each thing is computed once."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self.symbols: Mapping[str, str] = {symbol: f"s{k}" for k, symbol in enumerate(symbols)}
        self.lines: list[str] = []
        self.names: dict[str, str] = {}

    def nest(self, nest: Nest) -> str:
        if isinstance(nest, int | Dim):
            return self.size(nest)
        return f"({''.join(f'{self.nest(inner)},' for inner in nest)})"

    def size(self, size: Size) -> str:
        """A name or a number."""
        if isinstance(size, int):
            return _number(size)
        return self.named(" + ".join(self.term(monomial, factor) for monomial, factor in size.terms.items()))

    def term(self, monomial: Monomial, factor: int) -> str:
        factors = [_number(factor)] if factor != 1 or not monomial else []
        return " * ".join([*factors, *map(self.atom, monomial)])

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, tuple):
            return self.named(f"{self.size(atom[0])} // {self.size(atom[1])}")
        if atom not in self.symbols:
            raise ModelError(f"a size depends on {atom}, which is the size of no input")
        return self.symbols[atom]

    def named(self, formula: str) -> str:
        if formula.isidentifier():
            return formula
        if formula not in self.names:
            self.names[formula] = f"v{len(self.names)}"
            self.lines.append(f" {self.names[formula]} = {formula}")
        return self.names[formula]


def _number(number: int) -> str:
    # In digits that are bits Python reads and writes numbers of any length.
    return str(number) if -(1 << 63) <= number < 1 << 63 else f"({hex(number)})"
