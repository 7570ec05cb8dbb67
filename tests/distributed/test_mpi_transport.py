"""The `mpi` transport against the `threads` transport, of which this rank's result is taken."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import DTypeLike

from dlc.errors import DlcError
from dlc.machine.cpus import share_cpus, usable_cpus
from dlc.measure.network import measure_network
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.program_check import require_equal_programs
from dlc.runtime.collectives.start import start
from dlc.runtime.collectives.threads import run_ranks
from dlc.runtime.collectives.transport import Array, Transport, current_transport

DATA, ALL = ["data"], ["model", "data"]


def values(rank: int, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Return values that differ by rank, with zeros of both signs and NaN among floats."""
    # Sums of small integers overflow.
    largest = 100 if dtype is np.int8 else 60_000 if dtype is np.uint16 else 9
    numbers = np.random.default_rng(rank).integers(-9 if largest == 9 else 0, largest, shape)
    array = np.array(numbers.astype(bool) if dtype is bool else numbers, dtype)
    if array.dtype.kind == "f" and array.size > 3:
        array.reshape(-1)[:4] = [np.nan if rank == 0 else 1, -0.0 if rank == 0 else 0.0, 0.0 if rank == 0 else -0.0, -np.inf]
    return array


def assert_same(transport: Transport, run: Callable[[Transport], Array]) -> None:
    expected = run_ranks(transport.mesh, lambda rank: run(current_transport()))[transport.rank]
    actual = run(transport)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    np.testing.assert_array_equal(actual, expected)
    if actual.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("axes", [DATA, ALL], ids=["one_axis", "all_axes"])
def test_reductions(transport: Transport, dtype: DTypeLike, axes: list[str]) -> None:
    count = transport.group(axes).size
    for combine in ("max", "min") if dtype is bool else ("sum", "max", "min"):
        for shape in [(3, 15), (), (0, 2), (1,)]:
            assert_same(transport, lambda t: t.all_reduce(values(t.rank, shape, dtype), axes, combine, "reduce"))  # noqa: B023
            parts = (count, *shape)
            assert_same(transport, lambda t: t.reduce_scatter(values(t.rank, parts, dtype), axes, combine, "scatter"))  # noqa: B023


@pytest.mark.parametrize("dtype", [bool, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.complex64])
def test_movement(transport: Transport, dtype: DTypeLike) -> None:
    for shape in [(3, 5), (), (0, 2)]:
        for axes in (DATA, ALL):
            parts = (transport.group(axes).size, *shape)
            assert_same(transport, lambda t: t.all_gather(values(t.rank, shape, dtype), axes, "gather"))  # noqa: B023
            assert_same(transport, lambda t: t.all_to_all(values(t.rank, parts, dtype), axes, "exchange"))  # noqa: B023
        for pairs in ([], [(0, 1)], [(0, 1), (1, 0)]):
            assert_same(transport, lambda t: t.permute(values(t.rank, shape, dtype), "data", pairs, "permute"))  # noqa: B023


def test_read_only_arrays(transport: Transport) -> None:
    x = np.ones(3, np.float32)
    x.flags.writeable = False
    assert transport.all_reduce(x, DATA, "sum", "sum").tolist() == [2, 2, 2]
    assert transport.all_gather(x, DATA, "gather").tolist() == [[1, 1, 1]] * 2


def test_different_programs(transport: Transport) -> None:
    require_equal_programs(transport, "numerics: default", "func @main\n  %0 = dl.add")
    own = f"  %0 = dl.{'add' if transport.rank else 'sub'}"
    with pytest.raises(DlcError, match=r"line 2 of the module:\n  rank 0: %0 = dl.sub\n  ranks? 1(, 2, 3)?: %0 = dl.add"):
        require_equal_programs(transport, "numerics: default", f"func @main\n{own}")


def test_mesh_of_another_size(transport: Transport) -> None:
    with pytest.raises(DlcError, match=r"mesh data=8 has 8 ranks, the job has \d: start it with `mpiexec -n 8"):
        start(Mesh.of({"data": 8}))


def test_ranks_share_the_processors(transport: Transport) -> None:
    own = usable_cpus()
    share_cpus(1)
    total = usable_cpus()
    share_cpus(transport.mesh.size)
    assert own == usable_cpus() == max(1, total // transport.mesh.size)


def test_measured_network(transport: Transport) -> None:
    rates = measure_network(transport)
    assert 0 < rates.latency_seconds < 1 and rates.bytes_per_second > 0
