"""Where rows of truth values are true."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of, sizes
from dlc.ir import i64
from dlc.passes.procedures.code import Buffer, Code
from dlc.passes.procedures.values import select


def places(code: Code, op: dl.PlacesOp, x: Buffer, y: Buffer) -> None:
    """Every place is written where the next one that counts belongs, so that there is nothing to predict."""
    (rows, n), end = shape_of(op.x), code.size(sizes(op.size)[0])
    with code.grid(rows, n) as row:
        at = code.cell(code.index(0))
        with code.loop(0, code.size(n)) as i:
            y[row, at.value] = i.as_integer(i64)
            at.value = code.least(select(x[row, i], at.value + 1, at.value), end)
        with code.loop(at.value, code.index(end) + 1) as rest:
            y[row, rest] = code.index(code.size(n)).as_integer(i64)
