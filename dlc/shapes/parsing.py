"""Parse sizes and ranges from text."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from keyword import iskeyword

from dlc.shapes.dims import Dim, Size
from dlc.shapes.ranges import SizeRange


@lru_cache(maxsize=4096)  # The sizes of a type are parsed on each access.
def parse_size(text: str) -> Size:
    """Parse a size: `3`, `batch`, `past + 1`, `(n * 2) // 3`.

    Other text is the name of one symbol, since dimension names may contain any character.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return _evaluate(tree)
    except (SyntaxError, ValueError, RecursionError, ZeroDivisionError):
        return Dim.symbol(text)


def identifier(name: str) -> str:
    """Return a name as an identifier that both `parse_size` and MLIR accept."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{text}" if not text or text[0].isdigit() or iskeyword(text) else text


def parse_size_and_range(text: str) -> tuple[str, SizeRange | None]:
    """Parse a size and its range, as users write them: `N`, `N:1..32`, `N:4..`.

    Raises ValueError for an invalid range, and for a size without a name.
    """
    size, colon, ends = text.partition(":")
    if not size.strip():
        raise ValueError("the size has no name")
    if not colon:
        return text, None
    low, dots, high = ends.partition("..")
    range_ = SizeRange(_bound(low or "0"), _bound(high) if high else None) if dots else SizeRange(_bound(ends), _bound(ends))
    if range_.high is not None and range_.high < range_.low:
        raise ValueError(f"the range {ends!r} of {size} contains no size")
    return size.strip(), range_


def _bound(text: str) -> int:
    """Parse an end of a range. Raises ValueError for other text."""
    if not text.strip().isdecimal():
        raise ValueError(f"the bound {text!r} of a range is not a number")
    return int(text)


def _evaluate(node: ast.expr) -> Size:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return Dim.symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _evaluate(left), _evaluate(right)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv():
                    return a // b
                case _:
                    raise ValueError(f"unsupported operator in the dimension {ast.unparse(node)!r}")
        case _:
            raise ValueError(f"invalid dimension {ast.unparse(node)!r}")
