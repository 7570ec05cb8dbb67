"""The transport of tests that run on all ranks of a job of MPI: `mpiexec -n 2 python -m pytest tests/distributed`."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.start import start
from dlc.runtime.collectives.transport import Transport

# Variables that the launchers of MPICH, Open MPI and Slurm set.
_RANK_VARIABLES = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"}


@pytest.fixture(scope="session")
def transport() -> Transport:
    """Return the transport of this rank, on a mesh of two axes."""
    if find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed: pip install -e '.[dist]'")
    if not _RANK_VARIABLES & os.environ.keys():
        pytest.skip("runs on several ranks: mpiexec -n 2 python -m pytest tests/distributed")
    # Imported here because it needs MPI.
    from mpi4py import MPI

    return start(Mesh.of({"data": 2, "model": MPI.COMM_WORLD.size // 2}))
