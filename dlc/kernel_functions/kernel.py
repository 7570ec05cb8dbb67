"""`@dlc.kernel`: functions of arrays whose loops are written out."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from dlc.argument_validation.validate import call_user_function
from dlc.arrays import ShapeDtype
from dlc.backends.reference import loop_bodies
from dlc.calculus.custom_rules import custom_vjp
from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, is_storage_only
from dlc.dialects.dl.dtypes import element_type, is_float
from dlc.dialects.dl.library_kernels.loops import WITHOUT_DERIVATIVE
from dlc.errors import DlcError, DTypeError, UnsupportedError
from dlc.frontend.complex_numbers import is_complex
from dlc.frontend.trace import Tracer, current_trace, with_user_line
from dlc.ir import ArrayAttr, Attribute, Block, FunctionType, MemRefType, Region, StringAttr, func, i64
from dlc.just_in_time.decorator import jit
from dlc.just_in_time.jit_function import JitFunction
from dlc.kernel_functions.adjoints import adjoint_body
from dlc.kernel_functions.tracing_builder import TracingBuilder
from dlc.kernels.control import parallel_loop
from dlc.kernels.kernel_trace import KernelTrace, tracing_kernel
from dlc.kernels.references import ArrayReference
from dlc.kernels.results import Result
from dlc.kernels.values import constant, element_type_of_dtype
from dlc.numpy.apply import apply_all, as_shape, operand
from dlc.passes.structured import ConstantPool, OpBuilder
from dlc.passes.types import MemRef
from dlc.shapes.dims import Size
from dlc.shapes.parsing import identifier
from dlc.shapes.traced_dims import TracedSize

# Importing it sets the evaluator of kernels.
_evaluator = loop_bodies


class Kernel:
    """A function of arrays, as loops over their elements. Calls take the operands, and return the result or a tuple of them.

    Keyword-only parameters are static: Python values for which the kernel is specialized.
    """

    def __init__(
        self, function: Callable[..., Any], results: Callable[..., Any] | Result | Sequence[Result], checked: bool = False
    ) -> None:
        functools.update_wrapper(cast(Any, self), function)
        self._function = function
        self._results = results
        self._checked = checked
        self._name = identifier(getattr(function, "__name__", "kernel"))
        parameters = list(inspect.signature(function).parameters.values())
        self._parameters = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        self._statics = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
        if len(self._parameters) + len(self._statics) < len(parameters):
            kinds = "expected operands, then results, then keyword-only static parameters"
            raise self._error(f"the parameters {inspect.signature(function)}; {kinds}")
        self._num_operands = self._count_operands()
        # Compiled functions by static values, for calls outside of traced functions.
        self._compiled: dict[Hashable, JitFunction] = {}
        self.__signature__ = inspect.Signature([*self._parameters[: self._num_operands], *self._statics])

    def __call__(self, *operands: Any, **static: Any) -> Any:
        """Return the results; compile first if these shapes, dtypes and static values are new."""
        try:
            bound = self.__signature__.bind(*operands, **static)
        except TypeError as error:
            raise self._error(f"{error}; it is {self._name}{self.__signature__}", DTypeError) from None
        bound.apply_defaults()
        if current_trace() is not None or any(isinstance(x, Tracer) for x in bound.args):
            return self._insert(bound.args, bound.kwargs)
        key = tuple(sorted(bound.kwargs.items()))
        try:
            compiled = self._compiled.get(key)
        except TypeError:
            raise self._error(f"static values {bound.kwargs}; they must be hashable", DTypeError) from None
        if compiled is None:
            compiled = self._compiled[key] = jit(self._with_static_values(bound.kwargs))
        return compiled(*bound.args)

    def _with_static_values(self, static: Mapping[str, Any]) -> Callable[..., Any]:
        def call(*operands: Any) -> Any:
            return self._insert(operands, static)

        call.__name__ = self._name
        return call

    def _count_operands(self) -> int:
        """Return the number of operands: the parameters of `results`, or all but the results."""
        if isinstance(self._results, Result):
            return len(self._parameters) - 1
        if not callable(self._results):
            return len(self._parameters) - len(self._results)
        parameters = inspect.signature(self._results).parameters.values()
        return sum(p.name not in {s.name for s in self._statics} for p in parameters)

    def _insert(self, operands: Sequence[Any], static: Mapping[str, Any]) -> Any:
        """Trace the kernel for these operands, insert it into the program that is being traced, and return its results."""
        if any(map(is_complex, operands)):
            raise self._error("it has a complex operand; pass x.real and x.imag, and return two results", DTypeError)
        arrays = [operand(x) for x in operands]
        if not arrays:
            raise self._error("it has no operands; expected at least one", DTypeError)
        specs, is_tuple = self._result_specs(arrays, static)
        body = self._trace(arrays, specs, static)
        results = body.insert(arrays)
        return tuple(results[: len(specs)]) if is_tuple else results[0]

    def _result_specs(self, arrays: Sequence[Any], static: Mapping[str, Any]) -> tuple[list[Result], bool]:
        """Return the results for these operands, and whether the kernel returns a tuple."""
        specs: Any = self._results
        if callable(specs):
            names = inspect.signature(specs).parameters
            shapes = [ShapeDtype(x.shape, x.dtype) for x in arrays]
            specs = call_user_function(specs, *shapes, **{name: value for name, value in static.items() if name in names})
        listed = list(cast("Sequence[Any]", specs)) if isinstance(specs, tuple | list) else [specs]
        if not listed or not all(isinstance(spec, Result) for spec in listed):
            raise self._error(f"results = {specs!r:.80}; expected a k.Result(shape, dtype), or a tuple of them", DTypeError)
        expected = len(arrays) + len(listed)
        if len(self._parameters) != expected:
            raise self._error(
                f"it has {len(self._parameters)} parameters, but {len(arrays)} operands and {len(listed)} results", DTypeError
            )
        return listed, isinstance(specs, tuple | list)

    def _trace(self, arrays: Sequence[Any], specs: Sequence[Result], static: Mapping[str, Any]) -> _KernelBody:
        """Return the body for these operands and results."""
        function = func.FuncOp(self._name, FunctionType.from_lists([], []), Region(Block()))
        builder = TracingBuilder(OpBuilder(ConstantPool(function), function.body.block))
        trace = KernelTrace(function, builder, self._checked)
        names = [p.name for p in self._parameters]
        operands = [
            ArrayReference.of_argument(trace, name, "operand", x.shape, element_type(x.dtype))
            for name, x in zip(names, arrays, strict=False)
        ]
        results = [
            ArrayReference.of_argument(trace, name, "result", self._shape(spec), element_type_of_dtype(trace, spec.dtype))
            for name, spec in zip(names[len(arrays) :], specs, strict=True)
        ]
        for reference in (*operands, *results):
            if is_storage_only(reference.element):
                dtypes = f"{reference!r} has the dtype {reference.dtype}, which is storage-only"
                raise self._error(f"{dtypes}; convert it with .astype in the function that calls the kernel", DTypeError)
        with tracing_kernel(trace):
            for reference, spec in zip(results, specs, strict=True):
                self._initialize(reference, spec)
            call_user_function(self._function, *operands, *results, **static)
            trace.require_innermost(trace.scopes[0])
        for reference in results:
            if not reference.is_initialized and not reference.coverage.is_complete(reference.shape):
                raise self._error(
                    f"the result {reference.name} of shape {reference.shape} may have elements that are not written; "
                    f"give an initial value: k.Result(shape, dtype, fill=0), or write it in loops over all of its axes"
                )
        elements = [*(reference.element for reference in results), *(i64 for _ in trace.checks)]
        return _KernelBody(function, elements, trace.finish(), [checks.messages for checks in trace.checks])

    def _shape(self, spec: Result) -> tuple[TracedSize, ...]:
        return as_shape(f"kernel {self._name}: k.Result", spec.shape)

    def _initialize(self, reference: ArrayReference, spec: Result) -> None:
        """Emit a grid that writes the initial value of a result."""
        reference.is_initialized = spec.fill is not None
        if spec.fill is None or any(isinstance(n, int) and n == 0 for n in reference.shape):
            return
        trace = reference.trace
        with parallel_loop(trace.builder, list(map(trace.local_size, reference.shape)) or [1]) as point:
            fill_value = constant(trace, spec.fill, reference.element)
            reference.memory[tuple(point) if reference.shape else ()] = fill_value.kernel_value

    def _error(self, problem: str, kind: type[DlcError] = DlcError) -> DlcError:
        return with_user_line(kind(f"kernel {self._name}: {problem}"))


@dataclass(frozen=True)
class _KernelBody:
    """The body of a kernel, with the element types of its results and the sizes that are its last arguments.

    Attributes:
        messages: For each of the last results, the messages of its checks.
    """

    function: func.FuncOp
    elements: Sequence[Attribute]
    sizes: Sequence[Size] = ()
    messages: Sequence[Sequence[str]] = ()

    def insert(self, operands: Sequence[Any]) -> Sequence[Any]:
        """Insert the kernel into the program that is being traced, with its derivative if there is one; return its results."""
        if not _may_have_derivatives(operands):
            return self._apply(operands)
        reason = "it has run-time checks"
        if not self.messages:
            try:
                return self._with_derivative(operands, adjoint_body(self.function, len(operands)))
            except UnsupportedError as error:
                reason = str(error)
        results = self._apply(operands)
        results[0].value.owner.attributes[WITHOUT_DERIVATIVE] = StringAttr(reason)
        return results

    def _with_derivative(self, operands: Sequence[Any], adjoint: func.FuncOp) -> Sequence[Any]:
        """Insert the kernel with a custom reverse-mode rule: the adjoint kernel."""

        def backward(operands: Sequence[Any], cotangents: Sequence[Any]) -> tuple[Any, ...]:
            given = [ct for ct in cotangents if ct is not None]
            is_active = [is_float(element_type(x.dtype)) for x in operands]
            types = [a.type for a in adjoint.body.block.args][len(operands) + len(given) :]
            elements = [cast(MemRef, t).element_type for t in types if isinstance(t, MemRefType)]
            results = iter(_KernelBody(adjoint, elements, self.sizes).insert([*operands, *given]))
            return tuple(next(results) if active else None for active in is_active)

        function = custom_vjp(lambda *operands: self._apply(operands))
        function.defvjp(lambda *operands: (self.insert(operands), operands), backward)
        return function(*operands)

    def _apply(self, operands: Sequence[Any]) -> Sequence[Any]:
        properties: dict[str, Any] = {"body": dl.LoopBodyAttr.of(self.function), "elements": ArrayAttr(list(self.elements))}
        if self.sizes:
            properties["sizes"] = tuple(self.sizes)
        if self.messages:
            properties["checks"] = ArrayAttr([ArrayAttr(list(map(StringAttr, texts))) for texts in self.messages])
        return apply_all(dl.LoopsOp, *operands, **properties)


def _may_have_derivatives(operands: Sequence[Any]) -> bool:
    """Return whether the program that is being traced may differentiate operands."""
    trace = current_trace()
    has_tracers = any(isinstance(x, Tracer) and is_float(element_type_of(x.value)) for x in operands)
    return trace is not None and trace.derivative_orders > 0 and has_tracers


def kernel(
    *, results: Callable[..., Any] | Result | Sequence[Result], checked: bool = False
) -> Callable[[Callable[..., Any]], Kernel]:
    """Return a decorator of kernels: functions of references to the operands, then to the results.

        @dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
        def double(x, y):
            for i in k.grid(x.shape[0]):
                y[i] = 2 * x[i]

    `results` describes the results, for the shapes and dtypes of the operands: a `k.Result`, a tuple of them, or a function of
    the operands, and of static parameters that it names, that returns one of these. Loops are written with `dlc.kernels`
    (docs/kernels.md). Raises ShapeError for an index that may be out of bounds.

    With `checked`, an index that may be out of bounds is checked at run time: a call raises DlcError with its line.
    """
    return lambda function: Kernel(function, results, checked)
