"""Meshes of ranks for users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from dlc.errors import ArgumentError
from dlc.runtime.collectives.mesh import Mesh

# The limit of dlc.h for meshes in files.
_MAX_MESH_AXES = 64


def make_mesh(axes: Mapping[str, int], /) -> Mesh:
    """Return a mesh of ranks with these named axes: `dlc.make_mesh({"data": 4, "model": 2})`.

    The product of the sizes is the number of ranks. Ranks are numbered row-major, the last axis innermost. The processes join
    the MPI job when they first run a program on the mesh. Raises ArgumentError for invalid names and sizes, and for more than
    64 axes.
    """
    sizes = dict(cast("Mapping[object, object]", axes))
    if len(sizes) > _MAX_MESH_AXES:
        raise ArgumentError(f"dlc.make_mesh: {len(sizes)} axes; expected at most {_MAX_MESH_AXES}")
    for name, size in sizes.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ArgumentError(f"dlc.make_mesh: {name!r}; expected a name as the key of each axis")
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ArgumentError(f"dlc.make_mesh: axis {name!r} has the size {size!r}; expected a positive integer")
    return Mesh.of(cast("dict[str, int]", sizes))
