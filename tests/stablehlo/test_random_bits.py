"""Random bits, compared with published values and with JAX."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
from tests.stablehlo.test_reader import run

ALL_ONES = (1 << 64) - 1


@pytest.mark.parametrize(
    ("algorithm", "state", "next_state", "bits"),
    [
        # The example of StableHLO's specification.
        (
            "THREE_FRY",
            [1, 2],
            [1, 6],
            [9236835810183407956, 16087790271692313299, 18212823393184779219, 2658481902456610144],
        ),
        # Test vectors of Random123.
        ("PHILOX", [0, 0, 0], [0, 1, 0], [0xE169C58D6627E8D5, 0x9B00DBD8BC57AC4C]),
        ("PHILOX", [ALL_ONES] * 3, [ALL_ONES, 0, 0], [0x41C83B0E408F276D, 0x6D5451FDA20BC7C6]),
    ],
)
def test_published_bits(algorithm: str, state: list[int], next_state: list[int], bits: list[int]) -> None:
    types = f"tensor<{len(state)}xui64>", f"tensor<{len(bits)}xui64>"
    lines = (
        f"%0, %1 = stablehlo.rng_bit_generator %a, algorithm = {algorithm} : ({types[0]}) -> ({types[0]}, {types[1]})\n"
        f"return %0, %1 : {types[0]}, {types[1]}"
    )
    got_state, got_bits = run(lines, np.array(state, np.uint64))
    assert got_state.tolist() == next_state
    assert got_bits.tolist() == bits


@pytest.mark.parametrize("algorithm", ["RNG_DEFAULT", "RNG_PHILOX", "RNG_THREE_FRY"])
def test_bits_equal_those_of_xla(algorithm: str) -> None:
    jax = pytest.importorskip("jax")
    # The low half of Philox's counter wraps.
    key = np.array([5, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF], np.uint32)
    shapes = [((), np.uint32), ((5,), np.uint8), ((3, 4), np.uint32), ((3, 5), np.uint16), ((7, 3), np.uint32)]

    def draw(key: np.ndarray) -> list[object]:
        setting = getattr(jax.lax.RandomAlgorithm, algorithm)
        return [jax.lax.rng_bit_generator(key, shape, dtype, algorithm=setting) for shape, dtype in shapes]

    for got, wanted in zip(
        jax.tree.leaves(dlc.from_jax(draw, key, target="reference")(key)), jax.tree.leaves(jax.jit(draw)(key)), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)
