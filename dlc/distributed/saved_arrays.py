"""Arrays in a folder: each rank writes its shards, and a mesh of any size reads them.

    folder/manifest.json                       the dtype and shape of each array, and the file and position of its shards
    folder/3f1c09a2-00000.safetensors          the shards of rank 0, named like their arrays
    folder/3f1c09a2-00001.safetensors          the shards of rank 1

An array is named by its path in the saved tree, such as `0.first.w`. The manifest is replaced when all files are complete, so
that a job that is killed while it saves leaves the previous arrays. Replicated shards are written once.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from operator import index
from os import PathLike
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import ShapeDtype, to_numpy
from dlc.distributed.distributed_array import DistributedArray, replicate_unconstrained
from dlc.distributed.partition_spec import P, specs_of_leaves
from dlc.errors import DlcError, DTypeError, ModelError, ShapeError
from dlc.files.atomic_writes import atomic_write_text, to_path
from dlc.files.json_files import read_json
from dlc.files.safetensors import dtype_name, read_safetensors, write_safetensors
from dlc.frontend.pytree import Tree, flatten, unflatten
from dlc.passes.sharding.propagate import require_valid_spec
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.shards import shard_slices
from dlc.runtime.collectives.start import rank_on, transport_of
from dlc.runtime.collectives.transport import Transport, find_transport

_MANIFEST_NAME = "manifest.json"
_FORMAT = "dlc-arrays-1"
_SAVE, _LOAD = "dlc.save_arrays", "dlc.load_arrays"


@dataclass(frozen=True)
class _Shard:
    """A part of a saved array: its file, and the index of its first element."""

    file: str
    start: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple(slice(start, start + size) for start, size in zip(self.start, self.shape, strict=True))


@dataclass(frozen=True)
class _SavedArray:
    """The entry of an array in the manifest; `dtype` is a name of safetensors files."""

    dtype: str
    shape: tuple[int, ...]
    shards: tuple[_Shard, ...]


def save_arrays(folder: str | PathLike[str], tree: Any) -> None:
    """Save the arrays of a pytree in a folder, which is created. All ranks call it; each writes its shards to one file.

    Leaves are `DistributedArray`s, and arrays and numbers that are equal on all ranks. Earlier arrays in the folder are
    replaced when all ranks have written their files. Raises UnsupportedError for a dtype that safetensors files do not have,
    and DlcError on all ranks if one of them cannot write.
    """
    path = to_path(folder)
    leaves, structure = flatten(tree)
    arrays = {
        name: leaf if isinstance(leaf, DistributedArray) else to_numpy(leaf)
        for name, leaf in zip(_names(structure), leaves, strict=True)
    }
    starts = {name: _starts_by_rank(array) for name, array in arrays.items()}
    types = {name: (dtype_name(array.dtype), array.shape) for name, array in arrays.items()}
    transport = _transport(list(arrays.values()))
    rank = 0 if transport is None else transport.rank
    save_id = _agree_on_save_id(transport, token_hex(4), repr((types, starts)))
    own = {name: _local(array) for name, array in arrays.items() if rank in starts[name]}
    with _errors_on_all_ranks(transport):
        path.mkdir(parents=True, exist_ok=True)
        if own:
            write_safetensors(path / _file_name(save_id, rank), own)
    with _errors_on_all_ranks(transport):
        if rank == 0:
            entries = {name: _entry(save_id, array, starts[name]) for name, array in arrays.items()}
            _replace_manifest(path, {"format": _FORMAT, "arrays": entries})


def load_arrays(folder: str | PathLike[str], like: Any = None, shardings: Any = None, mesh: Mesh | None = None) -> Any:
    """Return the arrays that `dlc.save_arrays` wrote, on any mesh: each rank reads the parts that it needs.

    Args:
        like: A pytree of the saved structure, whose leaves have the expected shapes and dtypes: arrays, `dlc.ShapeDtype`s or
            `DistributedArray`s. None returns a dict of all arrays by name.
        shardings: A tree of `dlc.P`, as in dlc.jit. Arrays with a sharding become `DistributedArray`s of `mesh`; the others are
            replicated, or have the sharding of a `DistributedArray` in `like`.

    Raises ModelError for missing and damaged files and arrays, ShapeError and DTypeError for arrays that differ from `like`.
    """
    saved = _SavedArrays(to_path(folder))
    if like is None:
        if shardings is not None:
            raise DTypeError(f"{_LOAD}: shardings need `like`, a tree of the saved structure")
        return {name: saved.read(name, [slice(0, size) for size in array.shape]) for name, array in saved.entries.items()}
    leaves, structure = flatten(like)
    specs = specs_of_leaves(shardings, structure, "shardings")
    if mesh is None and any(spec is not None for spec in specs):
        raise DTypeError(f"{_LOAD}: shardings need a mesh")
    loaded = [_load(saved, name, leaf, spec, mesh) for name, leaf, spec in zip(_names(structure), leaves, specs, strict=True)]
    return unflatten(structure, iter(loaded))


def _load(saved: _SavedArrays, name: str, like: Any, spec: P | None, mesh: Mesh | None) -> Any:
    """Return one array: this rank's shard, or the whole array."""
    expected = like if isinstance(like, DistributedArray | ShapeDtype) else to_numpy(like)
    entry = saved.entry(name)
    shape, dtype = entry.shape, entry.dtype
    if shape != tuple(expected.shape):
        raise ShapeError(f"{_LOAD}: {name} has shape {shape} in {saved.folder}; expected {tuple(expected.shape)}")
    if dtype != dtype_name(expected.dtype):
        raise DTypeError(f"{_LOAD}: {name} has dtype {dtype} in {saved.folder}; expected {dtype_name(expected.dtype)}")
    if spec is None or mesh is None:
        if not isinstance(like, DistributedArray):
            return saved.read(name, [slice(0, size) for size in shape])
        mesh, full = like.mesh, like.spec
    else:
        padded = spec.padded(len(shape), ())
        require_valid_spec(mesh, shape, padded, f"{_LOAD}: {name}")
        full = replicate_unconstrained(padded)
    return DistributedArray(saved.read(name, shard_slices(mesh, rank_on(mesh), shape, full)), full, mesh)


class _SavedArrays:
    """The manifest of a folder, and its files, which are mapped when they are read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, dict[str, NDArray[Any]]] = {}

    @cached_property
    def entries(self) -> Mapping[str, _SavedArray]:
        """The entry of each array. Raises ModelError for a folder without a valid manifest."""
        path = self.folder / _MANIFEST_NAME
        try:
            manifest = read_json(path)
        except ModelError as error:
            raise ModelError(f"{error}; expected a folder of dlc.save_arrays") from error
        if manifest.get("format") != _FORMAT:
            raise ModelError(f"{path}: expected the format {_FORMAT!r}")
        arrays = manifest.get("arrays")
        if not isinstance(arrays, dict):
            raise ModelError(f"{path}: expected an object 'arrays'")
        return {name: _parse_entry(entry, path, name) for name, entry in cast("dict[str, Any]", arrays).items()}

    def read(self, name: str, slices: Sequence[slice]) -> NDArray[Any]:
        """Return a part of an array, copied from the shards that contain it."""
        result: NDArray[Any] | None = None
        missing = 1
        for shard in self.entry(name).shards:
            content = self._content(name, shard)
            if result is None:
                result = np.empty([s.stop - s.start for s in slices], content.dtype)
                missing = result.size
            common = [
                slice(max(a.start, b.start), max(a.start, b.start, min(a.stop, b.stop)))
                for a, b in zip(slices, shard.slices, strict=True)
            ]
            # The ellipsis makes a view of an array of rank 0 as well.
            target = result[(*_relative(common, [s.start for s in slices]), ...)]
            target[...] = content[_relative(common, shard.start)]
            missing -= target.size
        if result is None or missing:
            raise ModelError(f"{self.folder / _MANIFEST_NAME}: the shards of {name} do not cover it")
        return result

    def entry(self, name: str) -> _SavedArray:
        if name not in self.entries:
            raise ModelError(f"{self.folder}: no array {name!r}; it has {', '.join(sorted(self.entries)[:8])}, …")
        return self.entries[name]

    def _content(self, name: str, shard: _Shard) -> NDArray[Any]:
        if shard.file not in self._files:
            self._files[shard.file] = read_safetensors(self.folder / shard.file)
        array = self._files[shard.file].get(name)
        if array is None or array.shape != shard.shape:
            raise ModelError(f"{self.folder / shard.file}: no shard of {name} with shape {shard.shape}")
        return array


def _parse_entry(entry: Any, path: Path, name: str) -> _SavedArray:
    """Return an entry of a manifest. Raises ModelError if it is none."""
    try:
        shape = tuple(map(index, entry["shape"]))
        shards = [_Shard(s["file"], tuple(map(index, s["start"])), tuple(map(index, s["shape"]))) for s in entry["shards"]]
        are_valid = all(len(s.start) == len(s.shape) == len(shape) and Path(s.file).name == s.file for s in shards)
        dtype = str(entry["dtype"])
    except (KeyError, TypeError) as error:
        raise ModelError(f"{path}: invalid entry of {name}") from error
    if not are_valid:
        raise ModelError(f"{path}: invalid shards of {name}")
    if _has_overlap(shards):
        raise ModelError(f"{path}: shards of {name} overlap")
    return _SavedArray(dtype, shape, tuple(shards))


def _has_overlap(shards: Sequence[_Shard]) -> bool:
    """Return whether two shards have a common element."""
    if len(shards) < 2:
        return False
    starts, shapes = np.array([s.start for s in shards]), np.array([s.shape for s in shards])
    is_before: NDArray[np.bool_] = (starts + shapes)[:, None] <= starts
    are_disjoint = (is_before | is_before.swapaxes(0, 1)).any(axis=2)
    is_empty = (shapes == 0).any(axis=1)
    return not bool((are_disjoint | is_empty | is_empty[:, None] | np.eye(len(shards), dtype=np.bool_)).all())


def _relative(slices: Sequence[slice], start: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(s.start - first, s.stop - first) for s, first in zip(slices, start, strict=True))


def _names(structure: Tree) -> list[str]:
    """Return the name of each leaf: the keys on its path, joined by dots. Raises DTypeError if two names are equal."""

    def names(tree: Tree, prefix: tuple[str, ...]) -> list[str]:
        if tree.kind is None:
            return [".".join(prefix) or "array"]
        children = zip(tree.keys, tree.children, strict=True)
        return [name for key, child in children for name in names(child, (*prefix, str(key)))]

    result = names(structure, ())
    if duplicates := {name for name in result if result.count(name) > 1}:
        raise DTypeError(f"two arrays of the tree have the name {min(duplicates)!r}")
    return result


def _starts_by_rank(array: Any) -> dict[int, tuple[int, ...]]:
    """Return the ranks that write an array, with the index of the first element that each writes.

    Of the ranks that have the same shard, the lowest writes it.
    """
    if not isinstance(array, DistributedArray):
        return {0: (0,) * array.ndim}
    rank_by_start: dict[tuple[int, ...], int] = {}
    for rank in range(array.mesh.size):
        start = tuple(s.start for s in shard_slices(array.mesh, rank, array.shape, array.spec))
        rank_by_start.setdefault(start, rank)
    return {rank: start for start, rank in rank_by_start.items()}


def _local(array: Any) -> NDArray[Any]:
    """Return this rank's part of an array."""
    return array.shard if isinstance(array, DistributedArray) else array


def _file_name(save_id: str, rank: int) -> str:
    return f"{save_id}-{rank:05d}.safetensors"


def _entry(save_id: str, array: Any, starts: Mapping[int, tuple[int, ...]]) -> dict[str, Any]:
    """Return the entry of an array in the manifest."""
    shape = list(_local(array).shape)
    shards = [{"file": _file_name(save_id, rank), "start": list(start), "shape": shape} for rank, start in starts.items()]
    return {"dtype": dtype_name(array.dtype), "shape": list(array.shape), "shards": shards}


def _transport(arrays: Sequence[Any]) -> Transport | None:
    """Return the transport between the ranks that save; None for one process."""
    mesh = next((a.mesh for a in arrays if isinstance(a, DistributedArray)), None)
    return find_transport() if mesh is None else transport_of(mesh)


def _agree_on_save_id(transport: Transport | None, save_id: str, description: str) -> str:
    """Return the identifier of rank 0. Raises DlcError if ranks save different arrays."""
    if transport is None:
        return save_id
    messages = [json.loads(m) for m in transport.exchange(json.dumps([save_id, description]).encode(), _SAVE)]
    for rank, (_, other) in enumerate(messages):
        if other != messages[0][1]:
            raise DlcError(f"{_SAVE}: rank {rank} saves other arrays than rank 0; pass the same tree on all ranks")
    return str(messages[0][0])


@contextmanager
def _errors_on_all_ranks(transport: Transport | None) -> Generator[None]:
    """Wait for all ranks at the end of the `with` block. Raises DlcError on all of them if the block fails on one."""
    error = ""
    try:
        yield
    except (OSError, DlcError) as raised:
        error = str(raised)
    errors = [error] if transport is None else [m.decode() for m in transport.exchange(error.encode(), _SAVE)]
    for rank, text in enumerate(errors):
        if text:
            raise DlcError(f"{_SAVE}: {text}" if transport is None else f"{_SAVE}: rank {rank}: {text}")


def _replace_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest, and remove the files of the previous one."""
    path, previous = folder / _MANIFEST_NAME, _SavedArrays(folder)
    obsolete: set[str] = set()
    if path.exists():
        with suppress(ModelError):
            obsolete = {shard.file for array in previous.entries.values() for shard in array.shards}
    atomic_write_text(path, json.dumps(manifest, indent=1) + "\n")
    for file in obsolete:
        (folder / file).unlink(missing_ok=True)
