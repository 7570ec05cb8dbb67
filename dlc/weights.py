"""The weight store: the constant arrays of a program, stored outside of the IR.

The IR refers to an array by name (`dl.weight @w7`). The array is in memory, or a view of the model file
(files/mapped_files.py). Equal arrays are stored once. On disk, a store is a folder of `.npy` files (without pickle), which
are memory-mapped when they are loaded.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from dlc.arrays import read_npy
from dlc.errors import ModelError
from dlc.files.atomic_writes import atomic_write
from dlc.files.mapped_files import copy_to_memory, iter_chunks

Array = NDArray[Any]

# Dtypes that `.npy` headers do not support: arrays are stored as raw bits, and the file name contains the dtype.
_EXTENDED_DTYPES = {
    name: np.dtype(getattr(ml_dtypes, name))
    for name in (
        "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn",
        "int4", "uint4", "int2", "uint2",
    )
}  # fmt: skip


# Large arrays are compared by samples first.
_SAMPLE_CHUNKS, _SAMPLE_CHUNK_BYTES = 16, 4096
_DIGEST_CHUNK_BYTES = 1 << 20
_NON_WORD = re.compile(r"\W+")


class WeightStore(Mapping[str, Array]):
    """Arrays by name; `add` returns the existing name for an equal array."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}
        self._digests: dict[str, bytes] = {}
        # The last suffix that was used for each stem.
        self._last_suffixes: dict[str, int] = {}
        # The names of arrays with the same sample digest.
        self._names_by_sample: dict[bytes, list[str]] = {}

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def add(self, array: Array, hint: str = "w") -> str:
        """Store `array`, made C-contiguous, and return its name, which starts with `hint`."""
        if not array.flags.c_contiguous:
            array = np.require(array, requirements="C")
        candidates = self._names_by_sample.setdefault(_sample_digest(array), [])
        # Large arrays are rarely equal: a full digest is computed only if the samples are.
        digest = _digest(array) if candidates else b""
        for name in candidates:
            if self._compute_digest(name) == digest:
                return name
        stem = _NON_WORD.sub("_", hint) or "w"
        name = stem
        while name in self._arrays:
            k = self._last_suffixes[stem] = self._last_suffixes.get(stem, 0) + 1
            name = f"{stem}_{k}"
        self._arrays[name] = array
        if candidates:
            self._digests[name] = digest
        candidates.append(name)
        return name

    def digests(self) -> dict[str, bytes]:
        """Return for each array, by name, a digest of its bytes, dtype and shape."""
        return {name: self._compute_digest(name) for name in self._arrays}

    def _compute_digest(self, name: str) -> bytes:
        if name not in self._digests:
            self._digests[name] = _digest(self._arrays[name])
        return self._digests[name]

    def subset(self, names: Iterable[str]) -> WeightStore:
        """Return a store of the named arrays only; the arrays are shared."""
        store = WeightStore()
        store._arrays = {name: self._arrays[name] for name in names}
        store._digests = {name: digest for name, digest in self._digests.items() if name in store._arrays}
        for sample, candidates in self._names_by_sample.items():
            if names_in_store := [name for name in candidates if name in store._arrays]:
                store._names_by_sample[sample] = names_in_store
        return store

    def copy_to_memory(self) -> WeightStore:
        """Return a store of the same arrays, none of which is a view of a model file."""
        store = self.subset(self)
        store._arrays = {name: copy_to_memory(array) for name, array in self._arrays.items()}
        return store

    def save(self, folder: Path) -> None:
        """Write one `.npy` file per array. Existing files are not overwritten: equal names imply equal contents."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in self._arrays.items():
            extended = array.dtype.name if array.dtype.name in _EXTENDED_DTYPES else None
            path = folder / (f"{name}.{extended}.npy" if extended else f"{name}.npy")
            if not path.exists():
                with atomic_write(path) as file:
                    np.save(file, array.view(f"u{array.itemsize}") if extended else array, allow_pickle=False)

    @staticmethod
    def load(folder: Path) -> WeightStore:
        """Load the store that `save` wrote to `folder`, memory-mapped.

        Raises ModelError for an invalid file.
        """
        store = WeightStore()
        for path in sorted(folder.glob("*.npy")):
            name, _, extended = path.name.removesuffix(".npy").partition(".")
            try:
                array = read_npy(path, mapped=True)
                store._arrays[name] = array.view(_EXTENDED_DTYPES[extended]) if extended else array
            except (KeyError, ValueError, OSError) as error:
                raise ModelError(f"{path}: not an array of the weights store: {error}") from error
        return store


def _sample_digest(array: Array) -> bytes:
    """Return a digest of sampled chunks: equal arrays have equal samples, different ones rarely do."""
    if array.nbytes <= _SAMPLE_CHUNKS * _SAMPLE_CHUNK_BYTES:
        return _digest(array)
    step = (array.nbytes - _SAMPLE_CHUNK_BYTES) // (_SAMPLE_CHUNKS - 1)
    return _digest_of_chunks(iter_chunks(array, [k * step for k in range(_SAMPLE_CHUNKS)], _SAMPLE_CHUNK_BYTES), array)


def _digest(array: Array) -> bytes:
    return _digest_of_chunks(iter_chunks(array, range(0, array.nbytes, _DIGEST_CHUNK_BYTES), _DIGEST_CHUNK_BYTES), array)


def _digest_of_chunks(chunks: Iterable[memoryview], array: Array) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for chunk in chunks:
        digest.update(chunk)
    digest.update(f"{_dtype_name(array.dtype)}{array.shape}".encode())
    return digest.digest()


@lru_cache(maxsize=64)  # NumPy builds the string on each call.
def _dtype_name(dtype: np.dtype[Any]) -> str:
    return str(dtype)
