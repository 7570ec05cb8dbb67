"""The weights store: the constant arrays of a program, beside the IR, never in it.

The IR names an array (`dl.weight @w7`); the store holds it, or the file of a model does, of which it is a view then
(mapped_files.py). Equal arrays are held once: names are given by content. A store on disk is a folder of `.npy` files (written
without pickle) that are memory-mapped when read back.
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
from dlc.files.mapped_files import in_memory, pieces_of
from dlc.files.whole_files import written_whole

Array = NDArray[Any]

# npy headers know only NumPy's own dtypes: these travel as their bits, the name says which they are.
_EXTENDED = {
    name: np.dtype(getattr(ml_dtypes, name))
    for name in (
        "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn",
        "int4", "uint4", "int2", "uint2",
    )
}  # fmt: skip


# What a large array is told from others by at first: so many pieces of so many bytes.
_PIECES, _PIECE_BYTES = 16, 4096
_BYTES_AT_ONCE = 1 << 20
_BETWEEN_WORDS = re.compile(r"\W+")


class WeightStore(Mapping[str, Array]):
    """Arrays by name; `add` returns the name of an equal array that is held already."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}
        self._digests: dict[str, bytes] = {}
        # The last number behind each stem of names.
        self._numbers: dict[str, int] = {}
        # The names of arrays that a sample does not tell from one another.
        self._alike: dict[bytes, list[str]] = {}

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def add(self, array: Array, hint: str = "w") -> str:
        """Holds `array` (made C-contiguous) and returns its name, which starts with `hint`."""
        if not array.flags.c_contiguous:
            array = np.require(array, requirements="C")
        alike = self._alike.setdefault(_sample(array), [])
        # Large arrays are rarely equal, and digests of all of them would take longer than anything else done with them.
        content = _digest(array) if alike else b""
        for name in alike:
            if self._digest_of(name) == content:
                return name
        stem = _BETWEEN_WORDS.sub("_", hint) or "w"
        name = stem
        while name in self._arrays:
            k = self._numbers[stem] = self._numbers.get(stem, 0) + 1
            name = f"{stem}_{k}"
        self._arrays[name] = array
        if alike:
            self._digests[name] = content
        alike.append(name)
        return name

    def digests(self) -> dict[str, bytes]:
        """Of each array, by name, what tells it from all others: a digest of its bytes, dtype and shape."""
        return {name: self._digest_of(name) for name in self._arrays}

    def _digest_of(self, name: str) -> bytes:
        if name not in self._digests:
            self._digests[name] = _digest(self._arrays[name])
        return self._digests[name]

    def only(self, names: Iterable[str]) -> WeightStore:
        """A store of the named arrays alone, which both hold."""
        store = WeightStore()
        store._arrays = {name: self._arrays[name] for name in names}
        store._digests = {name: digest for name, digest in self._digests.items() if name in store._arrays}
        for sample, alike in self._alike.items():
            if held := [name for name in alike if name in store._arrays]:
                store._alike[sample] = held
        return store

    def in_memory(self) -> WeightStore:
        """A store of the same arrays, none of which is in a model's file any more."""
        store = self.only(self)
        store._arrays = {name: in_memory(array) for name, array in self._arrays.items()}
        return store

    def save(self, folder: Path) -> None:
        """Writes one `.npy` file per array; files that exist are kept, since names go with contents."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in self._arrays.items():
            extended = array.dtype.name if array.dtype.name in _EXTENDED else None
            path = folder / (f"{name}.{extended}.npy" if extended else f"{name}.npy")
            if not path.exists():
                with written_whole(path) as file:
                    np.save(file, array.view(f"u{array.itemsize}") if extended else array, allow_pickle=False)

    @staticmethod
    def load(folder: Path) -> WeightStore:
        """The store that `save` wrote to `folder`, memory-mapped.

        Raises ModelError for a file that is no array.
        """
        store = WeightStore()
        for path in sorted(folder.glob("*.npy")):
            name, _, extended = path.name.removesuffix(".npy").partition(".")
            try:
                array = read_npy(path, mapped=True)
                store._arrays[name] = array.view(_EXTENDED[extended]) if extended else array
            except (KeyError, ValueError, OSError) as error:
                raise ModelError(f"{path}: not an array of the weights store: {error}") from error
        return store


def _sample(array: Array) -> bytes:
    """What equal arrays have in common, and most others have not: a digest of pieces."""
    if array.nbytes <= _PIECES * _PIECE_BYTES:
        return _digest(array)
    step = (array.nbytes - _PIECE_BYTES) // (_PIECES - 1)
    return _digest_of_pieces(pieces_of(array, [k * step for k in range(_PIECES)], _PIECE_BYTES), array)


def _digest(array: Array) -> bytes:
    return _digest_of_pieces(pieces_of(array, range(0, array.nbytes, _BYTES_AT_ONCE), _BYTES_AT_ONCE), array)


def _digest_of_pieces(pieces: Iterable[memoryview], array: Array) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    digest.update(f"{_text(array.dtype)}{array.shape}".encode())
    return digest.digest()


@lru_cache(maxsize=64)  # NumPy puts it together anew each time
def _text(dtype: np.dtype[Any]) -> str:
    return str(dtype)
