"""Numbers in the dialect's words."""

from __future__ import annotations

from math import isinf, isnan
from typing import Any

import ml_dtypes
import numpy as np

from dlc.emission.c.core import Writer
from dlc.emission.c.text import code
from dlc.emission.c.vocabulary import bits_of
from dlc.emission.visit.registers import Register, is_float

_NUMPY: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


def literal(e: Writer, kind: str, value: float) -> str:
    """One element in the dialect's words."""
    held = e.held(Register(kind))
    if not is_float(kind):
        integer = int(value) & 1 if kind == "i1" else int(value)
        if kind in ("i32", "i64") and integer == -(1 << bits_of(held) - 1):
            # C has no negative literals, and the positive one would not fit.
            return code("(", e.expression(f"literal.{kind}", held, str(integer + 1)), " - 1)")
        return e.expression(f"literal.{held.kind}", held, str(integer))
    with np.errstate(over="ignore"):
        value = float(np.array(value, _NUMPY[kind]))
    if isnan(value):
        return e.expression("nan", held)
    if isinf(value):
        name = f"infinity.{held.kind}" if e.has(f"infinity.{held.kind}") else "infinity"
        return code("-" if value < 0 else "", e.expression(name, held))
    # The shortest decimal that reads back as this float.
    digits = repr(value) if held.kind == "f64" else repr(float(str(np.float32(value))))
    return e.expression(f"literal.{held.kind}", held, digits)
