"""Meshes of ranks for users, and the transport between their ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from dlc.errors import ArgumentError
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.start import start
from dlc.runtime.collectives.threads import ThreadsTransport
from dlc.runtime.collectives.transport import Transport, find_transport


def make_mesh(axes: Mapping[str, int], /) -> Mesh:
    """Return a mesh of ranks with these named axes: `dlc.make_mesh({"data": 4, "model": 2})`.

    The product of the sizes is the number of ranks. Ranks are numbered row-major, the last axis innermost. The processes join
    the MPI job when they first run a program on the mesh. Raises ArgumentError for invalid names and sizes.
    """
    sizes = dict(cast("Mapping[object, object]", axes))
    for name, size in sizes.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ArgumentError(f"dlc.make_mesh: {name!r}; expected a name as the key of each axis")
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ArgumentError(f"dlc.make_mesh: axis {name!r} has the size {size!r}; expected a positive integer")
    return Mesh.of(cast("dict[str, int]", sizes))


# The transports of this process, by mesh.
_transports: dict[Mesh, Transport] = {}


def transport_of(mesh: Mesh) -> Transport | None:
    """Return this rank's transport on a mesh; None for a mesh of one rank, which exchanges nothing.

    The first call of a process joins the MPI job. Raises DlcError if the job has another number of ranks.
    """
    transport = find_transport()
    if isinstance(transport, ThreadsTransport):
        return transport.on_mesh(mesh)
    if transport is not None and transport.mesh == mesh:
        return transport
    if mesh.size == 1:
        return None
    if mesh not in _transports:
        _transports[mesh] = start(mesh)
    return _transports[mesh]


def rank_on(mesh: Mesh) -> int:
    """Return the rank of this process or thread on a mesh. Raises DlcError as `transport_of` does."""
    transport = transport_of(mesh)
    return 0 if transport is None else transport.rank
