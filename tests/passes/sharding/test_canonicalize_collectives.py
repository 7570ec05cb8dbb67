"""`canonicalize_collectives`: native code can run the collectives that remain, with equal results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc import P, lax
from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.distributed.collectives import Collective
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.ir import walk_ops
from dlc.runtime.collectives.threads import run_ranks

X = np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32)
X[0, :3] = np.nan, -0.0, np.inf
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "half": lambda x: lax.psum(x.astype("float16"), "a"),
    "scattered half": lambda x: lax.psum_scatter(x.astype("bfloat16"), "a", scatter_dimension=1, tiled=True),
    "bytes": lambda x: lax.psum((dnp.nan_to_num(x) * 100).astype("int8"), "a"),
    "maximum": lambda x: lax.pmax(x, "a"),
    "minimum": lambda x: lax.pmin(x[0, 0], "a"),
    "scatter": lambda x: lax.psum_scatter(x, "a", scatter_dimension=1, tiled=True),
    "gather": lambda x: lax.all_gather(x, "a", axis=1, tiled=True),
    "gather of a new axis": lambda x: lax.all_gather(x, "a", axis=2),
    "exchange": lambda x: lax.all_to_all(x, "a", 1, 0, tiled=True),
    "exchange back": lambda x: lax.all_to_all(x, "a", 0, 1, tiled=True),
    "one rank": lambda x: lax.psum(lax.ppermute(x, "one", []), "one") + lax.pmax(x, "one") * lax.axis_index("one"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_collectives_are_canonical(name: str) -> None:
    mesh, function = dlc.make_mesh({"a": 2, "one": 1}), FUNCTIONS[name]
    flat = dlc.shard_map(lambda x: dnp.ravel(function(x)), in_specs=P("a"), out_specs=P(("a", "one")), mesh=mesh)
    lowered = dlc.jit(mesh=mesh, cache=False)(flat).lower(X)
    assert lowered.sharded is not None
    collectives = list(walk_ops(lowered.sharded.program.module, Collective))
    assert (name == "one rank") == (not collectives)
    for op in collectives:
        axes = [op.properties[axis].value.data for axis in op.axis_properties]
        assert not any(axes)
        dtype = numpy_dtype(element_type_of(op.operands[0]))
        assert not isinstance(op, dl.AllReduceOp | dl.ReduceScatterOp) or (
            dtype in (np.float32, np.int32) and op.combine.data == "sum"
        )

    def results(target: str) -> list[np.ndarray]:
        function_on_mesh = dlc.jit(mesh=mesh, target=target, cache=False)(flat)
        return run_ranks(mesh, lambda rank: np.array(dlc.collect(function_on_mesh(X)), np.float32))

    expected = [np.split(X, 2)[rank] for rank in range(2)]
    native, reference = results("cpu"), results("reference")
    for a, b in zip(native, reference, strict=True):
        np.testing.assert_array_equal(a, b)
    if name == "maximum":
        np.testing.assert_array_equal(native[0], np.tile(np.maximum(*expected).reshape(-1), 2))
    if name == "gather":
        np.testing.assert_array_equal(native[1], np.tile(np.concatenate(expected, 1).reshape(-1), 2))
