"""Collectives of compiled programs, which native code runs by calls of MPI."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
from dlc import P, lax
from dlc.errors import DlcError
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.mpi_functions import MpiFunctions
from dlc.runtime.collectives.threads import run_ranks
from dlc.runtime.collectives.transport import Transport
from dlc.runtime.cpu import program

RING = [(0, 1), (1, 0)]
COLLECTIVES: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: lax.psum(x, "data"),
    "sum of halves": lambda x: lax.psum(x.astype("float16"), "data"),
    "sum over two axes": lambda x: lax.psum(x, ("data", "model")),
    "sum of small integers": lambda x: lax.psum((x * 20000).astype("int32").astype("int16"), "data"),
    "sum of bytes": lambda x: lax.psum((x * 100).astype("int32").astype("uint8"), "data"),
    "maximum with NaN": lambda x: lax.pmax(x / (x - 3) * 0, "data"),
    "minimum of booleans": lambda x: lax.pmin(x > 3, "data"),
    "scatter": lambda x: lax.psum_scatter(x, "data", scatter_dimension=1, tiled=True),
    "gather": lambda x: lax.all_gather(x.astype("bfloat16"), "data"),
    "gather of columns": lambda x: lax.all_gather(x, "data", axis=1, tiled=True),
    "exchange": lambda x: lax.all_to_all(x, "data", 1, 0, tiled=True),
    "ring": lambda x: lax.ppermute(x, "data", RING),
    "index": lambda x: x * lax.axis_index("data"),
    "loop": lambda x: lax.scan(lambda c, _: (lax.psum(c, "data") / 2, c[0]), x, None, length=3),
}


def shards(mesh: Mesh, rank: int, function: Callable[[Any], Any]) -> list[Any]:
    """Return the shards of the results of a function of shards on a rank."""
    on_shards = dlc.shard_map(function, in_specs=P("data", "model"), out_specs=P("data", "model"), mesh=mesh)
    x = np.arange(8 * 8, dtype=np.float32).reshape(8, 8)
    results = dlc.jit(mesh=mesh, cache=False)(on_shards)(x)
    return [np.array(getattr(y, "shard", y), np.float32) for y in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_no_collective_runs_in_python(transport: Transport, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, mesh = COLLECTIVES[name], transport.mesh
    expected = run_ranks(mesh, lambda rank: shards(mesh, rank, function))[transport.rank]
    monkeypatch.setattr(program, "call_python_op", lambda call, *_: pytest.fail(f"{call.op} runs in Python"))
    for got, want in zip(shards(mesh, transport.rank, function), expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_an_error_of_mpi_names_the_collective(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    from mpi4py import MPI

    fails = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: MPI.ERR_COUNT)
    monkeypatch.setattr(MpiFunctions, "address", lambda *_: ctypes.cast(fails, ctypes.c_void_p).value)
    with pytest.raises(DlcError, match=r"dl.all_reduce at test_native_collectives.py:\d+: float32\[.*count"):
        shards(transport.mesh, transport.rank, COLLECTIVES["sum"])
