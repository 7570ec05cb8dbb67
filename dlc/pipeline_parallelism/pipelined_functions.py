"""`dlc.pipeline`: the function of global arrays around the schedule of a rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import dlc.numpy as dnp
from dlc import lax, tree
from dlc.calculus.custom_rules import custom_vjp
from dlc.calculus.shard_maps import shard_map
from dlc.calculus.transformed_calls import trace_or_compile
from dlc.distributed.local_mesh import current_jit_mesh, require_axes
from dlc.distributed.partition_spec import P
from dlc.errors import ShapeError
from dlc.frontend.trace import Tracer, with_user_line
from dlc.numpy.apply import is_floating
from dlc.pipeline_parallelism.buffers import Buffers, common_layouts, zeros
from dlc.pipeline_parallelism.schedule import Schedule
from dlc.pipeline_parallelism.stages import array_type, cut_into_stages, require_loss
from dlc.runtime.collectives.mesh import Mesh
from dlc.traced_functions.leaf_functions import NamedLeaves

_API_NAME = "dlc.pipeline"


def pipeline(
    function: Callable[..., Any], *, num_micro_batches: int, axis: str = "stage", batch_axes: Sequence[str] = ()
) -> Callable[..., Any]:
    """Return the mean of `function(parameters, *batch)` over micro-batches; each rank along a mesh axis runs one stage of it.

    `function` returns the mean loss of a micro-batch. Each call of `dlc.stage` in it begins another stage; the number of stages
    is a multiple of the ranks along `axis`. Axis 0 of all arrays of `batch` is the batch. The result is differentiable in
    `parameters` and in the floats of `batch`. Without a mesh, or with one rank along `axis`, one process runs all stages.

    Parameters are split over `axis`, whatever stage reads them. A rank receives those of its stage, and returns their
    gradients, by one all_to_all per dtype.

    Args:
        num_micro_batches: The number M of parts of a rank's batch. A rank computes in M of M + 2(S - 1) ticks.
        axis: The mesh axis along which ranks run the S stages.
        batch_axes: Mesh axes over which the batch is split as well.

    Raises ShapeError for a batch that does not divide into micro-batches and for a number of stages that is not a multiple of
    the ranks, and DTypeError for an axis that the mesh does not have, or that repeats.
    """

    def call(parameters: Any, *batch: Any) -> Any:
        mesh, parts = current_jit_mesh(), num_micro_batches
        if parts < 1:
            raise with_user_line(ShapeError(f"{_API_NAME}: num_micro_batches = {parts}; expected at least 1"))
        is_split = mesh is not None and mesh.sizes.get(axis) != 1
        if mesh is not None and is_split:
            require_axes(_API_NAME, (axis, *batch_axes), mesh)
            parts *= mesh.shard_count(batch_axes)
        leaves = NamedLeaves.of(_API_NAME, "batch", batch)
        _require_batch(leaves, parts)
        if mesh is None or not is_split:
            return _sequential(function, num_micro_batches, parameters, batch)
        pipelined = _Pipeline(function, num_micro_batches, axis, tuple(batch_axes), mesh)
        return _differentiable(pipelined)(parameters, *batch)

    return trace_or_compile(call, function, "the pipeline")


def _require_batch(batch: NamedLeaves, parts: int) -> None:
    """Raise ShapeError unless axis 0 of all arrays is the batch, in equal parts."""
    if not batch.values:
        raise with_user_line(ShapeError(f"{_API_NAME}: no batch; pass arrays after the parameters"))
    for value, name in zip(batch.values, batch.names, strict=True):
        if not value.shape or value.shape[0] != batch.values[0].shape[0]:
            problem = f"{_API_NAME}: {name} has shape {value.shape}; expected the batch as axis 0 of all arrays"
            raise with_user_line(ShapeError(problem))
    size = batch.values[0].shape[0]
    if size % parts:
        raise with_user_line(ShapeError(f"{_API_NAME}: batch size {size}; expected a multiple of num_micro_batches = {parts}"))


def _micro_batches(x: Any, count: int) -> Any:
    return dnp.reshape(x, (count, x.shape[0] // count, *x.shape[1:]))


def _sequential(function: Callable[..., Any], count: int, parameters: Any, batch: Any) -> Any:
    """Return the loss without a mesh."""

    def step(state: None, micro_batch: Any) -> tuple[None, Any]:
        loss = function(parameters, *micro_batch)
        require_loss(loss)
        return state, loss

    def split(x: Any) -> Any:
        return _micro_batches(x, count)

    return dnp.mean(lax.scan(step, None, tree.map(split, batch))[1])


def _differentiable(pipelined: _Pipeline) -> Callable[..., Any]:
    """Return the loss as a function whose forward rule computes the gradients as well."""
    function = custom_vjp(pipelined.loss)

    def backward(gradients: tuple[Any, ...], cotangent: Any) -> tuple[Any, ...]:
        def scaled(gradient: Any) -> Any:
            return (gradient * cotangent).astype(gradient.dtype)

        return tuple(tree.map(scaled, gradient) for gradient in gradients)

    function.defvjp(pipelined.loss_and_gradients, backward)
    return function


@dataclass(frozen=True)
class _Pipeline:
    function: Callable[..., Any]
    count: int
    axis: str
    batch_axes: tuple[str, ...]
    mesh: Mesh

    @property
    def ranks(self) -> int:
        """The number of ranks along `axis`."""
        return self.mesh.sizes[self.axis]

    def loss(self, parameters: Any, *batch: Any) -> Any:
        """Return the mean loss."""
        return self._run(NamedLeaves.of(_API_NAME, "parameters", parameters), NamedLeaves.of(_API_NAME, "batch", batch), False)

    def loss_and_gradients(self, parameters: Any, *batch: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return the mean loss, and its gradients with respect to all arguments; those of integers are zero."""
        parameter_leaves = NamedLeaves.of(_API_NAME, "parameters", parameters)
        batch_leaves = NamedLeaves.of(_API_NAME, "batch", batch)
        loss, of_parameters, of_batch = self._run(parameter_leaves, batch_leaves, True)
        parts = zip(of_parameters, parameter_leaves.values, strict=True)
        parameter_gradients = [_join_parts(part, leaf) for part, leaf in parts]
        floats = iter(of_batch)
        batch_gradients = [next(floats) if is_floating(v.dtype) else dnp.zeros_like(v) for v in batch_leaves.values]
        return loss, (parameter_leaves.with_leaves(parameter_gradients), *batch_leaves.with_leaves(batch_gradients))

    def _run(self, parameters: NamedLeaves, batch: NamedLeaves, with_gradients: bool) -> Any:
        """Return the loss, and with gradients also the parts of those of parameters, and those of the batch."""
        parts, batch_spec = P(self.axis), P(self.batch_axes)

        def on_shards(parts: list[Any], shards: list[Any]) -> Any:
            return _RankRun(self, parameters, batch, shards).run(parts, with_gradients)

        out_specs = (P(), parts, batch_spec) if with_gradients else P()
        mapped = shard_map(on_shards, in_specs=(parts, batch_spec), out_specs=out_specs)
        return mapped([_split_into_parts(leaf, self.ranks) for leaf in parameters.values], batch.values)


def _split_into_parts(leaf: Tracer, count: int) -> Any:
    """Return the elements of a leaf in equal parts [count, n], padded with zeros."""
    flat = dnp.reshape(leaf, -1)
    return dnp.reshape(dnp.pad(flat, (0, -flat.shape[0] % count)), (count, -1))


def _join_parts(parts: Any, leaf: Tracer) -> Any:
    """Return the array of which `parts` are the equal parts."""
    return dnp.reshape(dnp.reshape(parts, -1)[: prod(leaf.shape)], leaf.shape)


class _RankRun:
    """The run of a pipeline on one rank: the exchange of parameters and gradients around the ticks."""

    def __init__(self, pipelined: _Pipeline, parameters: NamedLeaves, batch: NamedLeaves, shards: Sequence[Any]) -> None:
        self.pipeline, self.parameters = pipelined, parameters
        self.all_axes = (pipelined.axis, *pipelined.batch_axes)
        self.batch = [_micro_batches(lax.pvary(x, self.all_axes), pipelined.count) for x in shards]
        micro_batch = [x[0] for x in self.batch]
        stages = cut_into_stages(pipelined.function, parameters, batch, micro_batch, pipelined.ranks)
        types = [array_type(v.value) for v in parameters.values]
        batch_types = [array_type(x.value) for x in micro_batch]
        self.schedule = Schedule(stages, types, batch_types, pipelined.count, pipelined.axis, self.all_axes)

    def run(self, parts: Sequence[Any], with_gradients: bool) -> Any:
        """Return the loss, and with gradients also the rank's parts of those of the parameters, and those of the batch."""
        share = 1 / (self.pipeline.count * self.pipeline.mesh.shard_count(self.pipeline.batch_axes))

        def mean(total: Any, axes: tuple[str, ...]) -> Any:
            combined = lax.psum(total, axes) if axes else total
            return (combined * share).astype(total.dtype)

        own = self._receive_parameters(parts)
        if not with_gradients:
            return mean(self.schedule.loss(own, self.batch), self.all_axes)
        loss, gradients, of_batch = self.schedule.loss_and_gradients(own, self.batch)
        of_parts = self._return_gradients(gradients)
        return (
            mean(loss, self.all_axes),
            [mean(g, self.pipeline.batch_axes).astype(v.dtype) for g, v in zip(of_parts, self.parameters.values, strict=True)],
            [mean(g, (self.pipeline.axis,)).reshape(-1, *g.shape[2:]) for g in of_batch],
        )

    def _receive_parameters(self, parts: Sequence[Any]) -> Buffers:
        """Exchange this rank's parts of all parameters for the parameters of its stage."""
        schedule = self.schedule
        sent = common_layouts([[(parts[k].shape[1:], parts[k].dtype) for k in stage.reads] for stage in schedule.stages])
        rows = [layout.pack([parts[k][0] for k in stage.reads]) for layout, stage in zip(sent, schedule.stages, strict=True)]
        received = self._exchange(rows)

        def branch(k: int) -> Callable[[], Buffers]:
            def run() -> Buffers:
                arrays = sent[k].unpack(received)
                leaves = [self.parameters.values[i] for i in schedule.stages[k].reads]
                return schedule.parameters[k].pack([_join_parts(a, v) for a, v in zip(arrays, leaves, strict=True)])

            return run

        own = lax.switch(lax.axis_index(self.pipeline.axis), [branch(k) for k in range(len(sent))])
        return lax.pvary(own, self.all_axes)

    def _return_gradients(self, gradients: Buffers) -> list[Any]:
        """Exchange the gradients of this rank's stage for its parts of the gradients of all parameters."""
        schedule, ranks = self.schedule, self.pipeline.ranks
        types = [[((-(-prod(shape) // ranks),), dtype) for shape, dtype in layout.types] for layout in schedule.gradients]
        layouts = common_layouts(types)

        def branch(k: int) -> Callable[[], Buffers]:
            def run() -> Buffers:
                arrays = schedule.gradients[k].unpack(gradients)
                return layouts[k].pack([_split_into_parts(a, ranks) for a in arrays], (ranks,))

            return run

        packed = lax.switch(lax.axis_index(self.pipeline.axis), [branch(k) for k in range(ranks)])
        received = lax.all_to_all(packed, self.pipeline.axis, 0, 0, tiled=True)
        totals: dict[int, Any] = {}
        for k, (layout, stage) in enumerate(zip(layouts, schedule.stages, strict=True)):
            floats = [i for i in stage.reads if is_floating(self.parameters.values[i].dtype)]
            arrays = layout.unpack({name: buffer[k] for name, buffer in received.items()})
            for i, array in zip(floats, arrays, strict=True):
                totals[i] = totals[i] + array if i in totals else array
        return [totals[i][None] if i in totals else self._zeros(value) for i, value in enumerate(self.parameters.values)]

    def _zeros(self, leaf: Tracer) -> Any:
        return lax.pvary(zeros((1, -(-prod(leaf.shape) // self.pipeline.ranks)), leaf.dtype), self.all_axes)

    def _exchange(self, rows: Sequence[Buffers]) -> Buffers:
        """Send each rank along the axis its row; return the rows that they sent to this one."""
        stacked = tree.map(lambda *buffers: dnp.stack(buffers), *rows)
        return lax.all_to_all(stacked, self.pipeline.axis, 0, 0, tiled=True)
