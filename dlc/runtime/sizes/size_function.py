"""Compile size polynomials to one Python function, which evaluates them in a few microseconds and without overflow.

    size_function(["N"], ((N, 64), N // 2 + 1, N // 2)) returns

    def evaluate(s0):
        v0 = s0 // 2
        v1 = v0 + 1
        return ((s0, 64,), v1, v0,)

Python integers are unbounded, so the result is exact for any polynomial, even one from an untrusted file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from dlc.dims import Atom, Dim, Monomial, Size
from dlc.errors import ModelError

# Nested tuples of sizes.
NestedSizes: TypeAlias = "Size | Sequence[NestedSizes]"


def size_function(symbols: Sequence[str], sizes: NestedSizes) -> Callable[..., Any]:
    """Return a function from the values of `symbols`, in order, to the values of `sizes`.

    The function raises ZeroDivisionError for a division by zero. Raises ModelError for an unknown symbol.
    """
    writer = _FunctionWriter(symbols)
    result = writer.nest(sizes)
    lines = [f"def evaluate({', '.join(writer.symbols.values())}):", *writer.lines, f" return {result}"]
    functions: dict[str, Any] = {}
    # The code consists only of names that this module generates; symbol names do not occur in it.
    exec("\n".join(lines), {"__builtins__": {}}, functions)
    return functions["evaluate"]


class _FunctionWriter:
    """Generates the lines of a function; common subexpressions are computed once."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self.symbols: Mapping[str, str] = {symbol: f"s{k}" for k, symbol in enumerate(symbols)}
        self.lines: list[str] = []
        self.names: dict[str, str] = {}

    def nest(self, nest: NestedSizes) -> str:
        if isinstance(nest, int | Dim):
            return self.size(nest)
        return f"({''.join(f'{self.nest(inner)},' for inner in nest)})"

    def size(self, size: Size) -> str:
        """Return a variable name or an integer literal."""
        if isinstance(size, int):
            return _literal(size)
        return self.variable(" + ".join(self.term(monomial, factor) for monomial, factor in size.terms.items()))

    def term(self, monomial: Monomial, factor: int) -> str:
        factors = [_literal(factor)] if factor != 1 or not monomial else []
        return " * ".join([*factors, *map(self.atom, monomial)])

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, tuple):
            return self.variable(f"{self.size(atom[0])} // {self.size(atom[1])}")
        if atom not in self.symbols:
            raise ModelError(f"a size depends on {atom}, which is not the size of any input axis")
        return self.symbols[atom]

    def variable(self, expression: str) -> str:
        if expression.isidentifier():
            return expression
        if expression not in self.names:
            self.names[expression] = f"v{len(self.names)}"
            self.lines.append(f" {self.names[expression]} = {expression}")
        return self.names[expression]


def _literal(number: int) -> str:
    # Python limits the length of decimal literals, but not of hexadecimal ones.
    return str(number) if -(1 << 63) <= number < 1 << 63 else f"({hex(number)})"
