"""`dlc.stage`, and the functions of the stages between its calls.

To trace a stage, the whole function runs: the call of `dlc.stage` at which the stage begins returns its inputs, and the next
call ends the run. Ops traced before the stage are dead and removed, except those that compute a value which the stage reads but
which was not passed to `dlc.stage`: the stage recomputes it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from dlc.argument_validation.validate import call_user_function
from dlc.dialects.dl import YieldOp
from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.errors import DlcError, ShapeError
from dlc.frontend.trace import Tracer, with_user_line
from dlc.ir import Block, SSAValue
from dlc.numpy.apply import is_floating
from dlc.passes.dl.rewriting import erase_dead_ops
from dlc.pipeline_parallelism.buffers import ArrayType
from dlc.traced_functions.leaf_functions import NamedLeaves, require_trace, trace_body


def stage(x: Any) -> Any:
    """Return `x`, and begin the next stage of the function that `dlc.pipeline` runs.

    `x` is a tree of arrays, which the previous stage sends to the next one. A stage recomputes all other values of earlier
    stages that it reads. Outside of `dlc.pipeline` this is the identity.

    Raises DlcError in the body of a loop, a branch or a transformed function.
    """
    cut = _cut.get()
    return x if cut is None else cut.call_stage(x)


class _EndOfStage(BaseException):
    """Ends the run of a function at the call of `dlc.stage` that ends a stage."""

    def __init__(self, outputs: Any) -> None:
        super().__init__()
        self.outputs = outputs


@dataclass
class _Cut:
    """One run of a function, which traces the ops between two calls of `dlc.stage`.

    Attributes:
        first: The number of the call that returns `inputs`, from 1 on; 0 for the start of the function.
        last: The number of the call that ends the run; None for the end of the function.
        block: The block into which the function is traced.
        num_calls: The number of calls so far.
    """

    first: int = 0
    last: int | None = None
    inputs: Any = None
    block: Block | None = None
    num_calls: int = 0

    def call_stage(self, x: Any) -> Any:
        if require_trace().innermost_block is not self.block:
            problem = "dlc.stage: called in the body of a loop, a branch or a transformed function"
            raise with_user_line(DlcError(f"{problem}; call it in the function of dlc.pipeline itself"))
        self.num_calls += 1
        if self.num_calls == self.last:
            raise _EndOfStage(x)
        return self.inputs if self.num_calls == self.first else x


_cut: ContextVar[_Cut | None] = ContextVar("cut", default=None)


@contextmanager
def _cutting(cut: _Cut) -> Generator[None]:
    token = _cut.set(cut)
    try:
        yield
    finally:
        _cut.reset(token)


@dataclass(frozen=True)
class StageFunction:
    """The function of one stage: of the parameters that it reads, a micro-batch, and the outputs of the stage before.

    Attributes:
        reads: The indices of the leaves of the parameters that the stage reads.
        reads_batch: The indices of the leaves of the batch that the stage reads.
        inputs: The types of the outputs of the stage before.
        outputs: The types of its outputs; the loss for the last stage.
    """

    reads: tuple[int, ...]
    reads_batch: tuple[int, ...]
    inputs: tuple[ArrayType, ...]
    outputs: tuple[ArrayType, ...]
    _block: Block = field(repr=False)
    _parameter_count: int
    _batch_count: int

    def __call__(self, parameters: Sequence[Any], batch: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """Insert a copy of the ops of the stage. `parameters` and `batch` are those of `reads` and `reads_batch`."""
        trace, first_input = require_trace(), self._parameter_count + self._batch_count
        arguments = self._block.args
        pairs = [
            *zip((arguments[k] for k in self.reads), parameters, strict=True),
            *zip((arguments[self._parameter_count + k] for k in self.reads_batch), batch, strict=True),
            *zip(arguments[first_input:], inputs, strict=True),
        ]
        values: dict[SSAValue, SSAValue] = {argument: trace.value(array).value for argument, array in pairs}
        for op in self._block.ops:
            if isinstance(op, YieldOp):
                return [Tracer(trace, values.get(value, value)) for value in op.values]
            trace.build.insert(op.clone(values))
        raise AssertionError("a body ends with a yield")


def cut_into_stages(
    function: Callable[..., Any], parameters: NamedLeaves, batch: NamedLeaves, micro_batch: Sequence[Any], count: int
) -> list[StageFunction]:
    """Return `function(parameters, *batch)` as `count` functions, each of one or several consecutive stages.

    Raises ShapeError for a number of stages that is not a multiple of `count`, and for a loss that is not a scalar.
    """
    run = _Run(function, parameters, batch, micro_batch)
    whole_function = _Cut()
    block, _ = run.trace(whole_function, [])
    block.erase(safe_erase=False)
    num_stages = whole_function.num_calls + 1
    if num_stages % count:
        problem = f"dlc.pipeline: the function has {num_stages} stages, for {count} ranks"
        raise with_user_line(ShapeError(f"{problem}; call dlc.stage so that the number of stages is a multiple of {count}"))
    stages: list[StageFunction] = []
    inputs = NamedLeaves.of("dlc.pipeline", "inputs", ())
    for k in range(count):
        first, last = (position * num_stages // count for position in (k, k + 1))
        block, results = run.trace(_Cut(first, last if k < count - 1 else None), inputs)
        stages.append(run.stage(block, inputs))
        inputs = results
    return stages


@dataclass(frozen=True)
class _Run:
    """A function and the arrays for which it is traced."""

    function: Callable[..., Any]
    parameters: NamedLeaves
    batch: NamedLeaves
    micro_batch: Sequence[Any]

    def trace(self, cut: _Cut, inputs: NamedLeaves | Sequence[Any]) -> tuple[Block, NamedLeaves]:
        """Trace a run of the function; return its body, whose arguments are all leaves, and its result."""
        values = [*self.parameters.values, *self.micro_batch, *(inputs.values if isinstance(inputs, NamedLeaves) else ())]
        count, batch_count = len(self.parameters.values), len(self.micro_batch)
        trees: list[NamedLeaves] = []

        def body(*leaves: Any) -> list[Any]:
            cut.block = require_trace().innermost_block
            if isinstance(inputs, NamedLeaves):
                cut.inputs = inputs.with_leaves(leaves[count + batch_count :])
            parameters, batch = self.parameters.with_leaves(leaves[:count]), self.batch.with_leaves(leaves[count:])
            with _cutting(cut):
                try:
                    outputs = call_user_function(self.function, parameters, *batch)
                except _EndOfStage as end:
                    outputs = end.outputs
                else:
                    require_loss(outputs)
            trees.append(NamedLeaves.of("dlc.stage", "x", outputs))
            return trees[-1].values

        arguments = NamedLeaves(values, self.parameters.tree, [])
        # Custom rules are inserted into the trace, since the schedule differentiates the stages.
        block, results = trace_body("dlc.pipeline", body, arguments, require_trace().derivative_orders + 1)
        return block, NamedLeaves(results.values, trees[0].tree, trees[0].names)

    def stage(self, block: Block, inputs: NamedLeaves) -> StageFunction:
        """Return the stage of a traced run, without the ops that it does not need."""
        erase_dead_ops(block)
        count, batch_count = len(self.parameters.values), len(self.micro_batch)
        is_read = [argument.first_use is not None for argument in block.args]
        last = block.last_op
        assert isinstance(last, YieldOp)
        return StageFunction(
            tuple(k for k in range(count) if is_read[k]),
            tuple(k for k in range(batch_count) if is_read[count + k]),
            tuple(array_type(tracer.value) for tracer in inputs.values),
            tuple(array_type(value) for value in last.values),
            block,
            count,
            batch_count,
        )


def require_loss(loss: Any) -> None:
    """Raise ShapeError for a result of the function that is not a scalar float."""
    dtype = getattr(loss, "dtype", None)
    if isinstance(loss, float) or (dtype is not None and not loss.shape and is_floating(dtype)):
        return
    got = f"a {type(loss).__name__}" if dtype is None else f"{dtype} of shape {loss.shape}"
    raise with_user_line(ShapeError(f"dlc.pipeline: the function returned {got}; expected the loss, a scalar float"))


def array_type(value: SSAValue) -> ArrayType:
    """Return the shape and the dtype of a value."""
    return tuple(int(size) for size in shape_of(value)), numpy_dtype(element_type_of(value))
