"""The meshes of the `dlc.shard_map`, whose axes collectives name, and of the `dlc.jit` that are being traced."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from dlc.errors import DlcError, DTypeError
from dlc.frontend.trace import with_user_line
from dlc.runtime.collectives.mesh import Mesh

_mesh: ContextVar[Mesh | None] = ContextVar("local_mesh", default=None)
# The mesh of the function that is being traced for ranks by dlc.jit.
_jit_mesh: ContextVar[Mesh | None] = ContextVar("jit_mesh", default=None)


@contextmanager
def local_mesh(mesh: Mesh) -> Generator[None]:
    """Trace the function of a shard_map in a `with` block."""
    token = _mesh.set(mesh)
    try:
        yield
    finally:
        _mesh.reset(token)


@contextmanager
def jit_mesh(mesh: Mesh | None) -> Generator[None]:
    """Trace a function for the ranks of a mesh in a `with` block."""
    token = _jit_mesh.set(mesh)
    try:
        yield
    finally:
        _jit_mesh.reset(token)


def current_jit_mesh() -> Mesh | None:
    """Return the mesh for which dlc.jit traces a function; None without a mesh."""
    return _jit_mesh.get()


def current_local_mesh() -> Mesh | None:
    """Return the mesh of the shard_map that is being traced; None outside of one."""
    return _mesh.get()


def group_of(api_name: str, axis_name: str | tuple[str, ...]) -> tuple[tuple[str, ...], int]:
    """Return mesh axes as a tuple, and the number of ranks along them.

    Raises DlcError outside of a shard_map, and what `require_axes` raises.
    """
    mesh = current_local_mesh()
    if mesh is None:
        raise with_user_line(DlcError(f"{api_name}: called outside of a function that dlc.shard_map runs"))
    axes = (axis_name,) if isinstance(axis_name, str) else axis_name
    require_axes(api_name, axes, mesh)
    return axes, mesh.shard_count(axes)


def require_axes(api_name: str, axes: Sequence[str], mesh: Mesh) -> None:
    """Raise DTypeError for an axis that a mesh does not have, or that repeats."""
    for k, axis in enumerate(axes):
        if axis not in mesh.sizes:
            raise with_user_line(DTypeError(f"{api_name}: {axis!r} is not an axis of the mesh {mesh}"))
        if axis in axes[:k]:
            raise with_user_line(DTypeError(f"{api_name}: the axis {axis!r} is given twice; remove one"))
