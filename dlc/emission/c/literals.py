"""Literals in a dialect of C."""

from __future__ import annotations

from math import isinf, isnan
from typing import Any

import ml_dtypes
import numpy as np

from dlc.emission.c.core import CWriter
from dlc.emission.c.statements import concat
from dlc.emission.c.templates import bits_of
from dlc.emission.common.registers import Register, is_float

_NUMPY: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


def literal(writer: CWriter, kind: str, value: float) -> str:
    """Return the text of one literal element."""
    compute_type = writer.computed_register(Register(kind))
    if not is_float(kind):
        integer = int(value) & 1 if kind == "i1" else int(value)
        if kind in ("i32", "i64") and integer == -(1 << bits_of(compute_type) - 1):
            # C has no negative literals, and the positive value would overflow.
            return concat("(", writer.expression(f"literal.{kind}", compute_type, str(integer + 1)), " - 1)")
        return writer.expression(f"literal.{compute_type.kind}", compute_type, str(integer))
    with np.errstate(over="ignore"):
        value = float(np.array(value, _NUMPY[kind]))
    if isnan(value):
        return writer.expression("nan", compute_type)
    if isinf(value):
        name = f"infinity.{compute_type.kind}" if writer.has(f"infinity.{compute_type.kind}") else "infinity"
        return concat("-" if value < 0 else "", writer.expression(name, compute_type))
    # The shortest decimal that parses to the same float.
    digits = repr(value) if compute_type.kind == "f64" else repr(float(str(np.float32(value))))
    return writer.expression(f"literal.{compute_type.kind}", compute_type, digits)
