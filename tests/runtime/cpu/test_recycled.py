"""Memory of results that are gone is that of later ones; what anybody still has is not."""

from __future__ import annotations

import gc

import numpy as np

from dlc.arrays import Array, address_of
from dlc.runtime.cpu.recycled import Recycler

F32 = np.dtype(np.float32)
SHAPE = (512, 512)


def test_memory_of_an_array_that_is_gone_is_used_again() -> None:
    results = Recycler(SHAPE, F32)
    first = results.empty()
    place = address_of(first)
    del first
    assert address_of(results.empty()) == place
    assert place % 64 == 0


def test_memory_that_a_view_refers_to_is_not() -> None:
    results = Recycler(SHAPE, F32)
    first = results.empty()
    first[...] = 1
    part = first.view(Array)[3:].reshape(-1)[::2]
    del first
    gc.collect()
    results.empty()[...] = 2
    assert (part == 1).all()


def test_no_more_than_one_is_kept() -> None:
    results = Recycler(SHAPE, F32)
    arrays = [results.empty() for _ in range(5)]
    places = {address_of(a) for a in arrays}
    assert len(places) == 5
    arrays.clear()
    again = [results.empty() for _ in range(2)]
    assert address_of(again[0]) in places
    assert not results._free  # pyright: ignore[reportPrivateUsage]


def test_arrays_without_elements_have_their_shape() -> None:
    empty = Recycler((0, 3), F32).empty()
    assert (empty.shape, empty.dtype, type(empty)) == ((0, 3), F32, Array)
