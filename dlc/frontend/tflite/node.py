"""The converter API of TFLite operators: a node's inputs, options and emitter, and converter tables.

    @table("SOFTMAX", options="beta.f32")
    def softmax(node): …

`options` lists the fields of the operator's options table in schema order, each with its type: `f32`, `i32`, `i8` (also
enums), `bool` or `ints` (a vector of i32). A default other than 0 follows the type: `dilation_w.i32=1`. The options of a custom
operator are bytes: a C struct of fields of four bytes.
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
from dlc.frontend.emitter import Emitter, ImportedValue
from dlc.frontend.operator_inputs import OperatorInputs
from dlc.frontend.problems import NodeProblem
from dlc.frontend.tflite.schema import TfliteOperator, TfliteQuantization, TfliteTensor
from dlc.ir import Attribute, f32, i64

# Inlines a subgraph of the file: (subgraph index, arguments, emitter) -> results.
ImportSubgraph: TypeAlias = Callable[[int, Sequence[ImportedValue], Emitter], Sequence[ImportedValue]]


@dataclass(frozen=True)
class Option:
    """A scalar or vector field of an options table: its index in the schema, its type, and its default."""

    field_index: int
    kind: str
    default: int


@dataclass(frozen=True)
class TfliteConverter:
    """The converter function of an operator, and the fields of its options."""

    convert: Callable[[TfliteNode], ImportedValue | Sequence[ImportedValue]]
    options: Mapping[str, Option]


class TfliteConverterTable:
    """The converters of one family of operators, by operator name. Calling it registers a converter."""

    def __init__(self) -> None:
        self.entries: dict[str, TfliteConverter] = {}

    def __call__(self, *operators: str, options: str = "") -> Callable[[_Convert], _Convert]:
        fields = {name: option for index, text in enumerate(options.split()) for name, option in [_option(index, text)]}

        def register(convert: _Convert) -> _Convert:
            self.entries.update({operator: TfliteConverter(convert, fields) for operator in operators})
            return convert

        return register


def _option(field_index: int, text: str) -> tuple[str, Option]:
    name, _, kind = text.partition(".")
    kind, _, default = kind.partition("=")
    return name, Option(field_index, kind, int(default or 0))


class TfliteNode(OperatorInputs):
    """One operator: `node[0]` is its first input as stored (quantized), `node.dequantized(0)` is its real value."""

    def __init__(
        self,
        operator: TfliteOperator,
        tensors: Sequence[TfliteTensor],
        inputs: Sequence[ImportedValue | None],
        options: Mapping[str, Option],
        emit: Emitter,
        import_subgraph: ImportSubgraph,
        description: str,
    ) -> None:
        self.sources = [tensors[k] if k >= 0 else None for k in operator.inputs]
        self.results = [tensors[k] for k in operator.outputs]
        super().__init__(description, inputs, [s.name if s is not None else "" for s in self.sources], emit)
        self.operator, self.import_subgraph = operator, import_subgraph
        self._options = options

    # Inputs

    def dequantized(self, k: int) -> ImportedValue:
        """Return an input as floats, dequantized if it is quantized."""
        x, source = self[k], self.sources[k]
        return x if source is None else self.dequantize_as(source, x, self.emit)

    def dequantize_as(self, tensor: TfliteTensor, x: ImportedValue, emit: Emitter) -> ImportedValue:
        """Dequantize a value with the quantization parameters of a tensor of the file."""
        quantization = tensor.quantization
        if quantization is None or is_float(x.element_type):
            return x
        scale, zero = self._parameters(quantization, x.element_type)
        axis = quantization.axis if scale.rank or zero.rank else 0
        if x.element_type == i64:
            # Biases of 16-bit quantization, which have zero point 0.
            scale = emit.reshape(scale, (*scale.shape, *(1,) * (x.rank - 1 - axis))) if scale.rank else scale
            return emit(dl.MulOp, emit.cast(x, f32), scale)
        # Do not constant-fold, so that small weights stay quantized as well.
        return emit.unfolded(dl.DequantizeOp, x, scale, zero, axis=axis)[0]

    def requantize_to_output(self, k: int) -> ImportedValue:
        """Return an input with the quantization parameters of the first output; it is unchanged if they are equal."""
        source, result = self.sources[k], self.results[0]
        if source is None or result.quantization is None:
            return self[k]
        has_same_quantization = source.type == result.type and source.quantization == result.quantization
        return self[k] if has_same_quantization else self.quantize_result(self.dequantized(k))

    def scalar_input(self, k: int, value_name: str) -> int:
        """Return the value of a constant integer input of one element."""
        entries = self.constant_integers(k, value_name)
        if len(entries) != 1:
            raise ModelError(f"{self.description}: its {value_name} must have one element, got {len(entries)}")
        return entries[0]

    # Options

    def integer(self, name: str) -> int:
        option, table = self._options[name], self.operator.options
        return option.default if table is None else int(table.scalar(option.field_index, option.kind, option.default))

    def flag(self, name: str) -> bool:
        return bool(self.integer(name))

    def float_option(self, name: str) -> float:
        option, table = self._options[name], self.operator.options
        return float(option.default if table is None else table.scalar(option.field_index, option.kind, option.default))

    def integers(self, name: str) -> tuple[int, ...]:
        table = self.operator.options
        return () if table is None else table.integers(self._options[name].field_index)

    # Results

    def element_type(self, output: int = 0) -> Attribute:
        """Return the element type of an output."""
        return element_type(self.results[output].dtype)

    def activate_and_quantize(self, y: ImportedValue) -> ImportedValue:
        """Apply the fused activation and quantize to the first output."""
        return self.quantize_result(self.activate(y))

    def quantize_result(self, y: ImportedValue) -> ImportedValue:
        """Quantize with the parameters of the first output, if it is quantized."""
        return self.quantize_as(self.results[0], y, self.emit)

    def quantize_as(self, tensor: TfliteTensor, y: ImportedValue, emit: Emitter) -> ImportedValue:
        """Quantize with the parameters of a tensor of the file, if it is quantized."""
        quantization, element = tensor.quantization, element_type(tensor.dtype)
        if quantization is None or is_float(element) or not is_float(y.element_type):
            return y
        scale, zero = self._parameters(quantization, element)
        return emit(dl.QuantizeOp, y, scale, zero, axis=quantization.axis if scale.rank or zero.rank else 0)

    def activate(self, y: ImportedValue) -> ImportedValue:
        """Apply the fused activation."""
        match self.integer("activation") if "activation" in self._options else 0:
            case 0:
                return y
            case 1:
                return self.emit(dl.ReluOp, y)
            case 2:
                return self.clamp(y, -1, 1)
            case 3:
                return self.clamp(y, 0, 6)
            case 4:
                return self.emit(dl.TanhOp, y)
            case other:
                raise NodeProblem("attribute", f"fused activation {other} is not supported")

    def clamp(self, x: ImportedValue, low: float, high: float) -> ImportedValue:
        emit = self.emit
        return emit(dl.MinimumOp, emit(dl.MaximumOp, x, emit.scalar(low, x)), emit.scalar(high, x))

    def apply(self, op: type[DlOp], *inputs: int) -> ImportedValue:
        """Apply an op to dequantized inputs, then the fused activation, and quantize the result."""
        return self.activate_and_quantize(self.emit(op, *map(self.dequantized, inputs)))

    def _parameters(self, quantization: TfliteQuantization, element: Attribute) -> tuple[ImportedValue, ImportedValue]:
        """Return scale and zero point; rank 0 for per-tensor quantization."""
        emit, (scales, zero_points) = self.emit, (quantization.scales, quantization.zero_points)
        bounds = ml_dtypes.iinfo(numpy_dtype(element))
        if not bounds.min <= zero_points.min() <= zero_points.max() <= bounds.max:
            raise ModelError(
                f"{self.description}: zero points {zero_points.min()} to {zero_points.max()} are out of range for {element}"
            )
        scale = emit.scalar(scales[0], f32) if scales.size == 1 else emit.constant(scales, np.float32)
        if (zero_points == zero_points[0]).all():
            return scale, emit.scalar(int(zero_points[0]), element)
        return scale, emit.cast(emit.constant(zero_points), element)


_Convert: TypeAlias = Callable[[TfliteNode], "ImportedValue | Sequence[ImportedValue]"]
