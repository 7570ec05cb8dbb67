"""Memory of results that are gone is that of later ones; what anybody still has is not."""

from __future__ import annotations

import gc

import numpy as np

from dlc.arrays import Array, address_of
from dlc.runtime.cpu.recycled import Recycler

F32 = np.dtype(np.float32)
SHAPE = (512, 512)


def recycler(count: int = 1) -> Recycler:
    return Recycler([512 * 512 * 4] * count)


def test_memory_of_an_array_that_is_gone_is_used_again() -> None:
    results = recycler()
    first = results.empty(SHAPE, F32)
    place = address_of(first)
    del first
    assert address_of(results.empty(SHAPE, F32)) == place
    assert place % 64 == 0


def test_memory_that_a_view_refers_to_is_not() -> None:
    results = recycler()
    first = results.empty(SHAPE, F32)
    first[...] = 1
    part = first.view(Array)[3:].reshape(-1)[::2]
    del first
    gc.collect()
    results.empty(SHAPE, F32)[...] = 2
    assert (part == 1).all()


def test_no_more_is_kept_than_a_call_needs() -> None:
    results = recycler(2)
    arrays = [results.empty(SHAPE, F32) for _ in range(5)]
    places = {address_of(a) for a in arrays}
    arrays.clear()
    again = [results.empty(SHAPE, F32) for _ in range(2)]
    assert {address_of(a) for a in again} < places
    assert sum(map(len, results._free.values())) == 0  # pyright: ignore[reportPrivateUsage]


def test_small_and_unforeseen_sizes_are_left_to_the_allocator() -> None:
    results = Recycler([16])
    assert results.empty((4,), F32).shape == (4,)
    assert results.empty(SHAPE, F32).dtype == F32
