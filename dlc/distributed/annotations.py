"""Sharding annotations inside of traced functions."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.distributed.sharding import PartialSpec, format_spec, spec_attribute
from dlc.distributed.local_mesh import current_jit_mesh, current_local_mesh
from dlc.distributed.partition_spec import P
from dlc.errors import DlcError, ShapeError
from dlc.frontend.pytree import flatten, unflatten
from dlc.frontend.trace import Tracer, current_trace, errors_at_user_line, with_user_line
from dlc.numpy.apply import apply
from dlc.passes.sharding.propagate import require_valid_spec


def shard(x: Any, spec: P) -> Any:
    """Return `x` with an annotation: on a mesh, its axes are split as `spec` says; axes that it omits are left to propagation.

    Applies to every leaf of a pytree. Without a mesh, and for arrays outside of a compiled function, it is the identity. Raises
    ShapeError for a spec that does not fit the array or the mesh, and DlcError inside of dlc.shard_map, whose arrays are shards
    already.
    """
    if current_local_mesh() is not None:
        raise with_user_line(DlcError("dlc.shard: called inside of a function that dlc.shard_map runs on shards"))
    leaves, tree = flatten(x)
    return unflatten(tree, iter([annotated(leaf, spec.axes) for leaf in leaves]))


def annotated(x: Any, spec: PartialSpec | None) -> Any:
    """Return an array with an annotation; axes that the spec omits are left to propagation. None is no annotation."""
    trace, mesh = current_trace(), current_jit_mesh()
    if spec is None:
        return x
    if isinstance(x, np.ndarray) and trace is not None and mesh is not None:
        x = trace.constant(cast("NDArray[Any]", x))
    if not isinstance(x, Tracer):
        return cast(Any, x)
    shape = shape_of(x.value)
    with errors_at_user_line():
        if len(spec) > len(shape):
            raise ShapeError(
                f"dlc.shard: P{format_spec(spec)} has {len(spec)} entries; expected at most {len(shape)}, one per axis"
            )
        if mesh is not None:
            require_valid_spec(mesh, shape, spec, "dlc.shard")
    return apply(dl.ShardOp, x, spec=spec_attribute((*spec, *(None for _ in shape[len(spec) :]))))
