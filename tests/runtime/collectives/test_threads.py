"""The `threads` transport: the definitions of the collectives, groups of a mesh, and errors of ranks."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.errors import DlcError
from dlc.runtime.collectives.mesh import Mesh, RankGroup
from dlc.runtime.collectives.threads import run_ranks
from dlc.runtime.collectives.transport import current_transport

MESH = Mesh.of({"data": 2, "model": 2})


def test_groups_of_a_mesh() -> None:
    assert MESH.group(3, ["data"]) == RankGroup((1, 3), 1)
    assert MESH.group(1, ["model"]) == RankGroup((0, 1), 1)
    assert MESH.group(1, ["model", "data"]) == RankGroup((0, 2, 1, 3), 2)
    assert [MESH.rank(MESH.coordinates(rank)) for rank in range(4)] == [0, 1, 2, 3]


def test_collectives() -> None:
    def run(rank: int) -> None:
        transport = current_transport()
        row, column = divmod(rank, 2)
        x = np.array([[rank, 10 * rank]])
        assert transport.all_reduce(x, ["data"], "sum", "sum").tolist() == [[2 * column + 2, 20 * column + 20]]
        assert transport.all_reduce(x, ["model", "data"], "max", "max").tolist() == [[3, 30]]
        assert transport.all_gather(x, ["model"], "gather").tolist() == [[[2 * row + k, 20 * row + 10 * k]] for k in (0, 1)]
        parts = np.array([rank, 10 + rank])
        assert transport.reduce_scatter(parts, ["model"], "sum", "scatter") == 4 * row + 1 + 20 * column
        assert transport.all_to_all(parts, ["model"], "all_to_all").tolist() == [
            2 * row + 10 * column,
            2 * row + 1 + 10 * column,
        ]
        assert transport.permute(parts, "data", [(0, 1)], "permute").tolist() == ([0, 0] if row == 0 else [column, 10 + column])
        assert transport.exchange(b"%d" % rank, "exchange") == [b"0", b"1", b"2", b"3"]

    run_ranks(MESH, run)


def test_results_do_not_share_memory() -> None:
    def run(rank: int) -> list[float]:
        x = np.zeros(2)
        gathered = current_transport().all_gather(x, ["data"], "gather")
        x += rank + 1
        return gathered.ravel().tolist()

    assert run_ranks(Mesh.of({"data": 2}), run) == [[0, 0, 0, 0]] * 2


def test_failure_of_a_rank_ends_the_others() -> None:
    errors: list[str] = []

    def run(rank: int) -> None:
        if rank == 1:
            raise ValueError("no data")
        try:
            current_transport().all_reduce(np.zeros(1), ["data"], "sum", "the sum")
        except DlcError as error:
            errors.append(str(error))
            raise

    with pytest.raises(ValueError, match="no data"):
        run_ranks(Mesh.of({"data": 2}), run)
    assert errors == ["the sum: rank 1 failed"]


def test_missing_rank_is_named() -> None:
    def run(rank: int) -> None:
        if rank:
            current_transport().all_reduce(np.zeros(1), ["data"], "sum", "the sum")

    with pytest.raises(DlcError, match=r"the sum: no call on ranks \[0\] within 0.1 s"):
        run_ranks(Mesh.of({"data": 2}), run, timeout_seconds=0.1)


def test_no_transport() -> None:
    with pytest.raises(DlcError, match="mpiexec"):
        current_transport()
