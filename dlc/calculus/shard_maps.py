"""`dlc.shard_map`: a function of shards, which each rank of a mesh runs on its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlc.argument_validation.validate import call_user_function
from dlc.calculus.transformed_calls import trace_or_compile
from dlc.dialects import dl
from dlc.dialects.dl.base import rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.distributed.sharding import spec_attribute
from dlc.dialects.dl.programs.control import captured_values
from dlc.distributed.local_mesh import current_jit_mesh, current_local_mesh, local_mesh
from dlc.distributed.partition_spec import P, specs_of_leaves
from dlc.errors import DlcError, DTypeError
from dlc.frontend.pytree import Tree
from dlc.frontend.trace import Trace, Tracer, errors_at_user_line, with_user_line
from dlc.ir import Block, SSAValue
from dlc.passes.sharding.propagate import Spec, require_valid_spec
from dlc.runtime.collectives.mesh import Mesh
from dlc.traced_functions.bodies import discard_on_error, terminate_body
from dlc.traced_functions.leaf_functions import NamedLeaves, require_trace

_API_NAME = "dlc.shard_map"


def shard_map(fun: Callable[..., Any], *, in_specs: Any, out_specs: Any, mesh: Mesh | None = None) -> Callable[..., Any]:
    """Return a function of global arrays that runs `fun` on each rank's shards of them.

    `fun` sees the shard of each argument, and exchanges data by the collectives of `dlc.lax`: psum, pmean, pmax, pmin,
    all_gather, psum_scatter, all_to_all and ppermute. Arrays that it closes over are replicated.

    Args:
        in_specs: A tree of `dlc.P` for the positional arguments: one for all, or a tuple with an entry for each. Axes that a
            spec omits, and arrays without a spec, are replicated.
        out_specs: A tree of `dlc.P` for the results, which are assembled from the results of the ranks. Along mesh axes that a
            spec does not name, ranks must have equal results.
        mesh: The mesh; by default that of the dlc.jit around the call.

    Derivatives are those of the global function. Raises ShapeError for a spec that does not fit, or whose result differs
    between ranks, and DlcError without a mesh.
    """

    def call(*args: Any) -> Any:
        used_mesh = _require_mesh(mesh)
        trace, arguments = require_trace(), NamedLeaves.of(_API_NAME, "argument", args)
        in_axes = _specs(used_mesh, in_specs, arguments.tree, arguments.values, "in_specs")
        shards = [_to_shards(trace, used_mesh, v, spec) for v, spec in zip(arguments.values, in_axes, strict=True)]
        block = Block()
        with discard_on_error([block]), trace.in_body(block), local_mesh(used_mesh):
            local = [Tracer(trace, s.value, v.weak) for s, v in zip(shards, arguments.values, strict=True)]
            results = NamedLeaves.of(_API_NAME, "result", call_user_function(fun, *arguments.with_leaves(local)))
            terminate_body(trace, block, results.values)
        _replicate_captures(used_mesh, block, {s.value for s in shards})
        values = _inline(trace, block)
        out_axes = _specs(used_mesh, out_specs, results.tree, values, "out_specs", split=False)
        outputs = [_from_shards(trace, used_mesh, v, spec) for v, spec in zip(values, out_axes, strict=True)]
        return results.with_leaves([Tracer(trace, y.value, v.weak) for y, v in zip(outputs, results.values, strict=True)])

    return trace_or_compile(call, fun, "shard_map", mesh)


def _require_mesh(mesh: Mesh | None) -> Mesh:
    """Return the mesh of a call. Raises DlcError if there is none, or inside of another shard_map."""
    if current_local_mesh() is not None:
        raise with_user_line(DlcError(f"{_API_NAME}: called inside of a function that dlc.shard_map runs"))
    if mesh is None:
        mesh = current_jit_mesh()
    if mesh is None:
        raise with_user_line(
            DlcError(f"{_API_NAME}: no mesh; pass mesh=, or call it in a function that dlc.jit(mesh=…) compiles")
        )
    return mesh


def _specs(mesh: Mesh, prefix: Any, tree: Tree, values: Sequence[Tracer], name: str, split: bool = True) -> list[Spec]:
    """Return the spec of each leaf. Raises DTypeError and ShapeError for specs that do not fit."""
    with errors_at_user_line():
        specs = [spec or P() for spec in specs_of_leaves(prefix, tree, f"{_API_NAME}: {name}")]
        result: list[Spec] = []
        for spec, value in zip(specs, values, strict=True):
            if None in spec.axes:
                raise DTypeError(f"{_API_NAME}: {name} has P.UNCONSTRAINED; expected mesh axes or None")
            shape = shape_of(value.value)
            padded = tuple(axes or () for axes in spec.padded(len(shape), ()))
            whole = shape if split else [size * mesh.shard_count(axes) for size, axes in zip(shape, padded, strict=False)]
            require_valid_spec(mesh, whole, padded, f"{_API_NAME}: {name}")
            result.append(padded)
        return result


def _to_shards(trace: Trace, mesh: Mesh, value: Tracer, spec: Spec) -> Tracer:
    # The annotation propagates to the argument.
    annotated = trace.apply(dl.ShardOp, value, spec=spec_attribute(spec))
    return trace.apply(dl.ToShardsOp, annotated, spec=spec_attribute(spec), mesh=str(mesh))


def _from_shards(trace: Trace, mesh: Mesh, value: Tracer, spec: Spec) -> Tracer:
    return trace.apply(dl.FromShardsOp, value, spec=spec_attribute(spec), mesh=str(mesh))


def _replicate_captures(mesh: Mesh, block: Block, shards: set[SSAValue]) -> None:
    """Convert the global values that a block reads to per-rank values; constants need no conversion."""
    for value in captured_values(block):
        if value in shards or isinstance(value.owner, dl.ConstantOp | dl.WeightOp):
            continue
        first = block.first_op
        assert first is not None, "a block that reads a value has an op"
        spec = spec_attribute([()] * rank_of(value))
        local = DlBuilder(first)(dl.ToShardsOp, value, spec=spec, mesh=str(mesh))
        inner = {op for op in block.walk() if op is not local.owner}
        value.replace_uses_with_if(local, lambda use, inner=inner: use.operation in inner)


def _inline(trace: Trace, block: Block) -> list[Tracer]:
    """Move the ops of a block into the block that is being traced; return the values that it yields."""
    last = block.last_op
    assert isinstance(last, dl.YieldOp)
    values = list(last.values)
    last.detach()
    last.erase()
    for op in list(block.ops):
        op.detach()
        trace.build.insert(op)
    return [Tracer(trace, value) for value in values]
