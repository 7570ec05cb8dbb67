"""RMS norm of each head, then rotary position embeddings, in one pass over memory."""

from __future__ import annotations

import dlc
import dlc.kernels as k


@dlc.kernel(results=lambda x, weight, cos, sin: k.Result(x.shape, x.dtype))
def norm_rotary(x, weight, cos, sin, y, *, epsilon=1e-6, width=16):
    """Rotate the normalized halves of x[tokens, heads, depth] by angles with cos and sin[tokens, depth/2]."""
    tokens, heads, depth = x.shape
    half = depth // 2
    for t, h in k.grid(tokens, heads):
        squares = k.variable(k.full(width, 0, x.dtype))
        for d in k.range(0, depth // width * width, width):
            v = x.load(t, h, d, width=width)
            squares.value = k.fma(v, v, squares.value)
        total = k.variable(squares.value.sum())
        for d in k.range(depth // width * width, depth):
            total.value += x[t, h, d] * x[t, h, d]
        scale = k.rsqrt(total.value / depth + epsilon)
        for d, lanes in k.strips(half, width):
            first = x.load(t, h, d, width=lanes) * scale * weight.load(d, width=lanes)
            second = x.load(t, h, d + half, width=lanes) * scale * weight.load(d + half, width=lanes)
            c, s = cos.load(t, d, width=lanes), sin.load(t, d, width=lanes)
            y.store(t, h, d, value=first * c - second * s)
            y.store(t, h, d + half, value=second * c + first * s)
