"""The comparison of programs between ranks."""

from __future__ import annotations

import pytest

from dlc.errors import DlcError
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.program_check import require_equal_programs
from dlc.runtime.collectives.threads import run_ranks
from dlc.runtime.collectives.transport import current_transport

MODULE = "func @main\n%0 = dl.add"


def check(options: dict[int, str], modules: dict[int, str]) -> None:
    def run(rank: int) -> None:
        require_equal_programs(current_transport(), options.get(rank, "cache: True"), modules.get(rank, MODULE))

    run_ranks(Mesh.of({"data": 3}), run)


def test_equal_programs() -> None:
    check({}, {})


@pytest.mark.parametrize(
    ("options", "modules", "message"),
    [
        ({}, {2: "func @main\n%0 = dl.sub"}, r"line 2 of the module:\n  ranks 0, 1: %0 = dl.add\n  rank 2: %0 = dl.sub"),
        ({}, {0: MODULE + "\nreturn"}, r"line 3 of the module:\n  rank 0: return\n  ranks 1, 2: \(no line\)"),
        ({1: "cache: False"}, {}, r"the mesh or the options:\n  ranks 0, 2: cache: True\n  rank 1: cache: False"),
    ],
)
def test_first_difference(options: dict[int, str], modules: dict[int, str], message: str) -> None:
    with pytest.raises(DlcError, match=message):
        check(options, modules)
