"""A product with weights of 4.5 bits: blocks of 32 integers of 4 bits with one float16 scale."""

from __future__ import annotations

import dlc
import dlc.kernels as k


@dlc.kernel(results=lambda x, packed, scales: k.Result(packed.shape[:1], x.dtype))
def block_product(x, packed, scales, y, *, rows=4):
    """Products of x[32·blocks] and weights: packed uint8[n, blocks, 16], low nibbles first; scales float16[n, blocks]."""
    n, blocks = scales.shape
    for i, count in k.strips(n, rows):
        totals = [k.variable(k.full(16, 0, x.dtype)) for _ in range(count)]
        for b in k.range(blocks):
            low, high = x.load(32 * b, width=16), x.load(32 * b + 16, width=16)
            offset = (low + high) * -8
            for r, total in enumerate(totals):
                pairs = packed.load(i + r, b, 0, width=16)
                products = k.fma((pairs >> 4).astype(x.dtype), high, k.fma((pairs & 15).astype(x.dtype), low, offset))
                total.value = k.fma(products, scales[i + r, b].astype(x.dtype), total.value)
        y.store(i, value=k.stack([total.value.sum() for total in totals]))
