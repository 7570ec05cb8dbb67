"""Buffer pools: memory of unreferenced results is reused, memory that is still referenced is not."""

from __future__ import annotations

import gc

import numpy as np

from dlc.arrays import Array, address_of
from dlc.runtime.cpu.buffer_pool import BufferPool

F32 = np.dtype(np.float32)
SHAPE = (512, 512)


def test_memory_of_a_deleted_array_is_reused() -> None:
    results = BufferPool(SHAPE, F32)
    first = results.empty()
    place = address_of(first)
    del first
    assert address_of(results.empty()) == place
    assert place % 64 == 0


def test_memory_of_a_live_view_is_not_reused() -> None:
    results = BufferPool(SHAPE, F32)
    first = results.empty()
    first[...] = 1
    part = first.view(Array)[3:].reshape(-1)[::2]
    del first
    gc.collect()
    results.empty()[...] = 2
    assert (part == 1).all()


def test_at_most_one_block_is_pooled() -> None:
    results = BufferPool(SHAPE, F32)
    arrays = [results.empty() for _ in range(5)]
    places = {address_of(a) for a in arrays}
    assert len(places) == 5
    arrays.clear()
    again = [results.empty() for _ in range(2)]
    assert address_of(again[0]) in places
    assert not results._free  # pyright: ignore[reportPrivateUsage]


def test_arrays_without_elements_have_their_shape() -> None:
    empty = BufferPool((0, 3), F32).empty()
    assert (empty.shape, empty.dtype, type(empty)) == ((0, 3), F32, Array)
