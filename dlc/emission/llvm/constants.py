"""Constants: literals written where they are used."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import islice
from typing import Any, cast

import ml_dtypes
import numpy as np

from dlc.emission.llvm.core import Emitter, Registers, RegisterType, register_type, splat_literal
from dlc.emission.visit.linear import Linear
from dlc.errors import UnsupportedError
from dlc.ir import (
    Attribute,
    BFloat16Type,
    DenseIntOrFPElementsAttr,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    Operation,
)


def literal(element: Attribute, value: float) -> str:
    """One element, as LLVM writes it."""
    if isinstance(element, Float32Type | Float64Type):
        if isinstance(element, Float32Type):
            with np.errstate(over="ignore"):
                value = float(np.float32(value))
        # Floats are given by the bits of the double that has their value.
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if isinstance(element, Float16Type | BFloat16Type):
        with np.errstate(over="ignore"):
            half = np.array(value, np.float16 if isinstance(element, Float16Type) else ml_dtypes.bfloat16)
        return str(int(half.view(np.uint16)))
    if isinstance(element, IntegerType) and element.width.data == 1:
        return str(int(value) & 1)
    return str(int(value))


def splat(type: RegisterType, value: float) -> str:
    return splat_literal(type, literal(type.element, value))


def lane_literals(type: RegisterType, texts: list[str]) -> str:
    """A register of literals; unused lanes are zero."""
    if type.width == 1:
        return texts[0]
    zero = "0x0000000000000000" if type.scalar in ("float", "double") else "0"
    texts = texts + [zero] * (type.width - len(texts))
    return f"<{', '.join(f'{type.scalar} {t}' for t in texts)}>"


def mask_literal(type: RegisterType) -> str:
    """The lanes of a register that mean something."""
    return lane_literals(register_type(IntegerType(1), type.width), ["1"] * type.used)


def constant(e: Emitter, op: Operation) -> None:
    """arith.constant"""
    result, value = op.results[0], op.properties["value"]
    types = e.layout(result.type)
    if isinstance(value, IntegerAttr) and isinstance(types[0].element, IndexType):
        e.linears[result] = Linear(value.value.data)
    elif isinstance(value, IntegerAttr | FloatAttr):
        e.registers[result] = (literal(types[0].element, value.value.data),)
    elif isinstance(value, DenseIntOrFPElementsAttr):
        values = cast(Sequence[float], cast(Any, value).get_values())
        e.registers[result] = _splat(types, values[0]) if value.is_splat() else _registers(types, values)
    else:
        raise UnsupportedError(f"kernel @{e.kernel}: a constant of the form {value.name} cannot be emitted; use dense<…>")


def _splat(types: Sequence[RegisterType], value: float) -> Registers:
    return tuple(splat(t, value) for t in types)


def _registers(types: Sequence[RegisterType], values: Sequence[float]) -> Registers:
    """Row-major values, cut into the registers' pieces."""
    registers: list[str] = []
    rest = iter(values)
    for t in types:
        registers.append(lane_literals(t, [literal(t.element, v) for v in islice(rest, t.used)]))
    return tuple(registers)


HANDLERS = {"arith.constant": constant}
