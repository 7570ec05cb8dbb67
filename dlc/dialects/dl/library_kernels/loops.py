"""Kernels with explicit loops: an op whose body is a function on buffers, written by the user (dlc/kernels)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import StringIO
from typing import ClassVar, cast

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl.base import Array, Tensor, element_type_of, rank_of, shape_of, sizes, tensor_type
from dlc.dialects.dl.interfaces import LibraryKernel, storage_type
from dlc.dialects.remainder import RemFOp
from dlc.dialects.sizes import sizes_of, symbol
from dlc.errors import CompileError, DlcError, DTypeError, ShapeError
from dlc.ir import (
    ArrayAttr,
    Attribute,
    AttrParser,
    Builtin,
    Context,
    Data,
    DenseArrayBase,
    MemRefType,
    Parser,
    Printer,
    SSAValue,
    StringAttr,
    TensorType,
    VerifyException,
    arith,
    func,
    index,
    irdl_attr_definition,
    irdl_op_definition,
    math,
    memref,
    opt_prop_def,
    prop_def,
    scf,
    var_operand_def,
    var_result_def,
    vector,
)
from dlc.runtime.python_ops.control import format_failure
from dlc.shapes.dims import Size, is_same, substitute

# Attributes of a grid: the number of points that a task runs, or their extents in each dimension; and of a loop: the number of
# iterations that one generated iteration runs.
POINTS_PER_TASK, TILE, UNROLL = "points_per_task", "tile", "unroll"
_BODY_DIALECTS = (arith.Arith, func.Func, math.Math, memref.MemRef, scf.Scf, vector.Vector)
_BODY_DIALECT_NAMES = frozenset(dialect.name for dialect in _BODY_DIALECTS)


@irdl_attr_definition
class LoopBodyAttr(Data[str]):
    """A function on buffers, one per operand and result: `#dl.loop_body<func.func @f(%x: memref<4xf32>, …) { … }>`.

    It is stored as text with locations, so that equal bodies of the same lines are equal attributes.
    """

    name = "dl.loop_body"

    @staticmethod
    def of(function: func.FuncOp) -> LoopBodyAttr:
        """Return the body with the ops of a function."""
        text = _text(function, locations=True)
        if text not in _functions:
            _store(text, function.clone())
        return LoopBodyAttr(text)

    @property
    def function(self) -> func.FuncOp:
        """The function, which is shared: clone it before changing it."""
        return _function(self.data)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        assert isinstance(parser, Parser)
        # The names of the body are its own, and its dialects need not be loaded outside.
        outer = parser.ctx, parser.ssa_values
        parser.ctx, parser.ssa_values = _context(), {}
        try:
            with parser.in_angle_brackets():
                op = parser.parse_op()
        finally:
            parser.ctx, parser.ssa_values = outer
        if not isinstance(op, func.FuncOp):
            parser.raise_error(f"expected a func.func, got {op.name}")
        return LoopBodyAttr.of(op).data

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.data if printer.print_debuginfo else _text(self.function, locations=False))


def _text(function: func.FuncOp, *, locations: bool) -> str:
    stream = StringIO()
    Printer(stream=stream, print_debuginfo=locations).print_op(function)
    return stream.getvalue().replace(" loc(unknown)", "")


_MAX_CACHE_ENTRIES = 256
# The functions of bodies, by their text.
_functions: dict[str, func.FuncOp] = {}


def _function(text: str) -> func.FuncOp:
    if text not in _functions:
        _store(text, cast(func.FuncOp, Parser(_context(), text, "loop body").parse_op()))
    return _functions[text]


def _store(text: str, function: func.FuncOp) -> None:
    """Cache a function; the oldest one is dropped if there are too many."""
    if len(_functions) >= _MAX_CACHE_ENTRIES:
        del _functions[next(iter(_functions))]
    _functions[text] = function


def _context() -> Context:
    """Return a context with the dialects of loop bodies."""
    context = Context()
    for dialect in (Builtin, *_BODY_DIALECTS):
        context.load_dialect(dialect)
    context.load_op(RemFOp)
    context.load_attr_or_type(DimsAttr)
    return context


# The reason for which a kernel has no derivative rule.
WITHOUT_DERIVATIVE = "dlc.without_derivative"


@irdl_op_definition
class LoopsOp(LibraryKernel):
    """The results of a function on buffers: `body(x…, y…)` reads the operands `x` and writes the results `y` of `elements`.

    A body on buffers of symbolic sizes takes the sizes of `sizes` as its last arguments, `s0`, `s1`, …, and declares the sizes
    of its buffers as polynomials in these, as kernels do (dlc/dialects/sizes.py).

    Grids (`scf.parallel`) at the top of the body run one after the other; the points of one grid run in any order.
    (C1) the arguments of `body` are row-major buffers of the operands, then of the results, and it returns nothing; (C2) it
    contains ops of arith, math, memref, scf, vector only; (C3) no point of a grid reads or writes an element of a result that
    another point of the same grid writes, which the evaluator checks; (C4) the body writes all elements of the results.

    Each list of messages in `checks` belongs to one of the last results, i64[points…, 2]: at each point of a grid, the number
    of the message of the failed check, or -1, and the index that the message states. A failed check is an error.
    """

    name = "dl.loops"
    ACCEPTS_STORAGE_ONLY: ClassVar[bool] = True
    arguments = var_operand_def(TensorType)
    body = prop_def(LoopBodyAttr)
    elements = prop_def(ArrayAttr)
    sizes = opt_prop_def(DenseArrayBase | DimsAttr)
    checks = opt_prop_def(ArrayAttr)
    outputs = var_result_def(TensorType)

    # Runs a body on arrays of the operands; the evaluator of loops sets it (dlc/backends/reference/loop_bodies.py).
    EVALUATE_BODY: ClassVar[Callable[[LoopsOp, Sequence[Array]], tuple[Array, ...]] | None] = None

    @property
    def kernel_name(self) -> str:
        return self.body.function.sym_name.data

    @property
    def size_arguments(self) -> Sequence[Size]:
        """The sizes that are the last arguments of the body."""
        return () if self.sizes is None else sizes(self.sizes)

    def body_shape(self, argument: SSAValue) -> tuple[Size, ...]:
        """Return the shape of a buffer of the body, in the sizes of the program."""
        values = {symbol(k): size for k, size in enumerate(self.size_arguments)}
        return tuple(substitute(size, values) for size in sizes_of(argument))

    def infer(self) -> Sequence[Tensor]:
        function = self.body.function
        arguments, elements = function.body.block.args, [*map(element_type_of, self.operands), *self.elements.data]
        types = [a.type for a in arguments]
        buffers = [cast("MemRefType[Attribute]", t).element_type for t in types if isinstance(t, MemRefType)]
        is_buffers_then_sizes = types[len(buffers) :] == [index] * len(self.size_arguments)
        if buffers != list(map(storage_type, elements)) or not is_buffers_then_sizes or function.function_type.outputs.data:
            expected = [*map(str, elements), *("index" for _ in self.size_arguments)]
            raise DTypeError(
                f"dl.loops: the body of @{self.kernel_name} takes {list(map(str, types))}; expected buffers of {expected} (C1)"
            )
        shapes = [self.body_shape(a) for a in arguments[: len(elements)]]
        for operand, shape in zip(self.operands, shapes, strict=False):
            if not (rank_of(operand) == len(shape) and all(map(is_same, shape_of(operand), shape))):
                raise ShapeError(
                    f"dl.loops: the body of @{self.kernel_name} takes a buffer of shape {shape}; got {shape_of(operand)} (C1)"
                )
        foreign = {op.name for op in function.walk() if op.name.partition(".")[0] not in _BODY_DIALECT_NAMES}
        if foreign:
            raise DTypeError(f"dl.loops: the body of @{self.kernel_name} contains {', '.join(sorted(foreign))} (C2)")
        try:
            function.verify()
        except VerifyException as error:
            raise DTypeError(f"dl.loops: the body of @{self.kernel_name} is invalid: {error}") from error
        return [tensor_type(s, e) for s, e in zip(shapes, elements, strict=True)][len(self.operands) :]

    def reference(self, *operands: Array) -> tuple[Array, ...]:
        if LoopsOp.EVALUATE_BODY is None:
            raise CompileError("dl.loops is run by the evaluator; import dlc.backends.reference first")
        results = LoopsOp.EVALUATE_BODY(self, operands)
        for check, (_, messages) in zip(results[len(results) - len(self.checked_results) :], self.checked_results, strict=True):
            rows = check.reshape(-1, 2)
            for number, value in rows[rows[:, 0] >= 0][:1]:
                raise DlcError(format_failure(messages[int(number)], [int(value)]))
        return results

    @property
    def checked_results(self) -> Sequence[tuple[SSAValue, Sequence[str]]]:
        """The results of checks, and their messages."""
        lists = [[cast(StringAttr, m).data for m in cast(ArrayAttr, texts).data] for texts in self.checks or ()]
        return list(zip(self.results[len(self.results) - len(lists) :], lists, strict=True))
