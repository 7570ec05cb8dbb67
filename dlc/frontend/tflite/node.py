"""What a converter sees of one operator: its inputs, its options, and the emitter; and the tables that converters stand in.

    @table("SOFTMAX", options="beta.f32")
    def softmax(node): …

`options` are the fields of the operator's table of options in the order of the public schema, with their kinds: `f32`, `i32`,
`i8` (enums too), `bool`, `ints` (a vector of i32), and a default that is not 0 (`dilation_w.i32=1`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import ml_dtypes
import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dialects.dl.dtypes import element_type, is_float, numpy_dtype
from dlc.errors import ModelError
from dlc.frontend.emit import Emitter, Value
from dlc.frontend.operands import Operands
from dlc.frontend.problems import NodeProblem
from dlc.frontend.tflite.schema import Operator, Quantization, Tensor
from dlc.ir import Attribute, f32, i64

# Runs a graph of the file on values, with an emitter: what it returns.
Inline: TypeAlias = Callable[[int, Sequence[Value], Emitter], Sequence[Value]]


@dataclass(frozen=True)
class Option:
    """A field of a table of options."""

    number: int
    kind: str
    default: int


@dataclass(frozen=True)
class Converter:
    """What makes the results of an operator, and the options it has."""

    convert: Callable[[Node], Value | Sequence[Value]]
    options: Mapping[str, Option]


class Table:
    """The converters of one family, by operator."""

    def __init__(self) -> None:
        self.entries: dict[str, Converter] = {}

    def __call__(self, *kinds: str, options: str = "") -> Callable[[_Convert], _Convert]:
        fields = {name: option for number, text in enumerate(options.split()) for name, option in [_option(number, text)]}

        def register(convert: _Convert) -> _Convert:
            self.entries.update({kind: Converter(convert, fields) for kind in kinds})
            return convert

        return register


def _option(number: int, text: str) -> tuple[str, Option]:
    name, _, kind = text.partition(".")
    kind, _, default = kind.partition("=")
    return name, Option(number, kind, int(default or 0))


class Node(Operands):
    """One operator: `node[0]` is its first input as it is stored, `node.real(0)` as the numbers that it means."""

    def __init__(
        self,
        operator: Operator,
        tensors: Sequence[Tensor],
        inputs: Sequence[Value | None],
        options: Mapping[str, Option],
        emit: Emitter,
        inline: Inline,
        place: str,
    ) -> None:
        self.sources = [tensors[k] if k >= 0 else None for k in operator.inputs]
        self.results = [tensors[k] for k in operator.outputs]
        super().__init__(place, inputs, [s.name if s is not None else "" for s in self.sources], emit)
        self.operator, self.inline = operator, inline
        self._options = options

    # Inputs

    def real(self, k: int) -> Value:
        """An input as the numbers that it means: dequantised, if it is quantised."""
        x, source = self[k], self.sources[k]
        return x if source is None else self.real_of(source, x, self.emit)

    def real_of(self, tensor: Tensor, x: Value, emit: Emitter) -> Value:
        """The numbers that a value means which is stored as a tensor of the file is."""
        quantization = tensor.quantization
        if quantization is None or is_float(x.element_type):
            return x
        scale, zero = self._parameters(quantization, x.element_type)
        axis = quantization.axis if scale.rank or zero.rank else 0
        if x.element_type == i64:
            # Biases beside data of 16 bits; of none so wide the zero point is another number than 0.
            scale = emit.reshape(scale, (*scale.shape, *(1,) * (x.rank - 1 - axis))) if scale.rank else scale
            return emit(dl.MulOp, emit.cast(x, f32), scale)
        # Weights stay integers, also few of them.
        return emit.unfolded(dl.DequantizeOp, x, scale, zero, axis=axis)[0]

    def as_result(self, k: int) -> Value:
        """An input as the first output stores numbers: as it is where that is quantised alike."""
        source, result = self.sources[k], self.results[0]
        if source is None or result.quantization is None:
            return self[k]
        alike = source.type == result.type and source.quantization == result.quantization
        return self[k] if alike else self.stored(self.real(k))

    def number(self, k: int, what: str) -> int:
        """The only element of a known integer input."""
        entries = self.integers_of(k, what)
        if len(entries) != 1:
            raise ModelError(f"{self.place}: its {what} must have one element, got {len(entries)}")
        return entries[0]

    # Options

    def integer(self, name: str) -> int:
        option, table = self._options[name], self.operator.options
        return option.default if table is None else int(table.scalar(option.number, option.kind, option.default))

    def flag(self, name: str) -> bool:
        return bool(self.integer(name))

    def real_option(self, name: str) -> float:
        option, table = self._options[name], self.operator.options
        return float(option.default if table is None else table.scalar(option.number, option.kind, option.default))

    def integers(self, name: str) -> tuple[int, ...]:
        table = self.operator.options
        return () if table is None else table.integers(self._options[name].number)

    # Results

    def element(self, output: int = 0) -> Attribute:
        """The element type of an output."""
        return element_type(self.results[output].dtype)

    def finished(self, y: Value) -> Value:
        """The first output: after the activation that the operator has in it, as it is stored."""
        return self.stored(self._activated(y))

    def stored(self, y: Value) -> Value:
        """Numbers as the first output stores them: quantised, if it is quantised."""
        return self.stored_as(self.results[0], y, self.emit)

    def stored_as(self, tensor: Tensor, y: Value, emit: Emitter) -> Value:
        """Numbers as a tensor of the file stores them."""
        quantization, element = tensor.quantization, element_type(tensor.dtype)
        if quantization is None or is_float(element) or not is_float(y.element_type):
            return y
        scale, zero = self._parameters(quantization, element)
        return emit(dl.QuantizeOp, y, scale, zero, axis=quantization.axis if scale.rank or zero.rank else 0)

    def _activated(self, y: Value) -> Value:
        match self.integer("activation") if "activation" in self._options else 0:
            case 0:
                return y
            case 1:
                return self.emit(dl.ReluOp, y)
            case 2:
                return self.clamped(y, -1, 1)
            case 3:
                return self.clamped(y, 0, 6)
            case 4:
                return self.emit(dl.TanhOp, y)
            case other:
                raise NodeProblem("attribute", f"fused activation {other} is not supported")

    def clamped(self, x: Value, low: float, high: float) -> Value:
        emit = self.emit
        return emit(dl.MinimumOp, emit(dl.MaximumOp, x, emit.scalar(low, x)), emit.scalar(high, x))

    def applied(self, op: type[DlOp], *inputs: int) -> Value:
        """An op on the numbers that these inputs mean, as the output stores it."""
        return self.finished(self.emit(op, *map(self.real, inputs)))

    def _parameters(self, quantization: Quantization, element: Attribute) -> tuple[Value, Value]:
        """Scale and zero point, each one number where it is the same for all."""
        emit, (scales, zeros) = self.emit, (quantization.scales, quantization.zeros)
        bounds = ml_dtypes.iinfo(numpy_dtype(element))
        if not bounds.min <= zeros.min() <= zeros.max() <= bounds.max:
            raise ModelError(f"{self.place}: a zero point of {zeros.min()} to {zeros.max()} is no number of {element}")
        scale = emit.scalar(scales[0], f32) if scales.size == 1 else emit.constant(scales, np.float32)
        if (zeros == zeros[0]).all():
            return scale, emit.scalar(int(zeros[0]), element)
        return scale, emit.cast(emit.constant(zeros), element)


_Convert: TypeAlias = Callable[[Node], "Value | Sequence[Value]"]
