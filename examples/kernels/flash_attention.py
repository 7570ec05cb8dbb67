"""Flash attention with a causal mask and grouped heads: softmax(q·kᵀ/√depth)·v without the matrix of scores."""

from __future__ import annotations

import math

import numpy as np

import dlc
import dlc.kernels as k


@dlc.kernel(results=lambda q, key, value: k.Result(q.shape, q.dtype))
def flash_attention(q, key, value, out, *, causal=True, rows=8, lanes=32, block=32):
    """Attention of q[batch, heads, queries, depth] to key and value[batch, groups, keys, depth]; vectors are of queries."""
    (batch, heads, queries, depth), (groups, keys) = q.shape, key.shape[1:3]
    for b, h, t in k.grid(batch, heads, -(-queries // lanes)):
        g, scale = h // (heads // groups), math.log2(math.e) * depth**-0.5
        query = k.iota(lanes, np.int32) + (lanes * t).astype(np.int32)
        transposed, sums, weights = (
            k.buffer((n, lanes), q.dtype, fill=x) for n, x in ((depth, None), (depth, 0), (block, None))
        )
        for d in k.range(0, depth, 8):
            transposed.store(d, 0, value=scale * q.load(b, h, lanes * t, d, width=(8, lanes), axis=(3, 2), fill=0))
        largest, total = k.variable(k.full(lanes, -1e30, q.dtype)), k.variable(k.full(lanes, 0, q.dtype))
        # All queries of the vector attend to the keys of the first blocks.
        whole, end = (k.minimum(lanes * t + n, keys) if causal else k.index(keys) for n in (0, lanes))
        parts = ((0, whole // block * block, False), (whole // block * block, end, True))
        for c, is_masked in ((c, masked) for low, high, masked in parts for c in k.range(low, high, block)):
            new = k.variable(largest.value)
            for r in k.range(0, block, rows):
                scores = k.variable(k.full((rows, lanes), 0, q.dtype))
                for d in k.range(depth):
                    element = key.load(b, g, c + r, d, width=(rows, 1), fill=0)
                    scores.value = k.fma(element, transposed.load(d, 0, width=lanes), scores.value)
                at = k.iota((rows, 1), np.int32, axis=0) + (c + r).astype(np.int32)
                if is_masked:
                    scores.value = k.select((at <= query) & (at < keys) if causal else at < keys, scores.value, -1e30)
                weights.store(r, 0, value=scores.value)
                new.value = k.maximum(new.value, scores.value.max(0))
            decay = k.exp2(largest.value - new.value)
            largest.value, total.value = new.value, total.value * decay
            for r in k.range(0, block, 4):
                weight = k.exp2(weights.load(r, 0, width=(4, lanes)) - new.value)
                weights.store(r, 0, value=weight)
                total.value += weight.sum(0)
            for d in k.range(0, depth, rows):
                part = k.variable(sums.load(d, 0, width=(rows, lanes)) * decay)
                for j in k.range(block):
                    element = value.load(b, g, c + j, d, width=(rows, 1), axis=(3, 2), fill=0)
                    part.value = k.fma(element, weights.load(j, 0, width=lanes), part.value)
                sums.store(d, 0, value=part.value)
        for d in k.range(0, depth, rows):
            out.store(b, h, lanes * t, d, value=sums.load(d, 0, width=(rows, lanes)) / total.value, axis=(3, 2), masked=True)


@dlc.kernel(results=lambda q, key, value, out, g: tuple(k.Result(x.shape, x.dtype, fill=0) for x in (q, key, value)))
def attention_cotangents(q, key, value, out, g, dq, dkey, dvalue, *, causal=True, lanes=16):
    """Cotangents of the operands of attention, from its result and its cotangent `g`; vectors are of queries."""
    batch, heads, queries, depth = q.shape
    groups, keys = key.shape[1:3]
    for b, group in k.grid(batch, groups):
        for member, t in ((m, t) for m in range(heads // groups) for t in k.range(0, queries, lanes)):
            h, scale = (heads // groups) * group + member, depth**-0.5
            query = k.iota(lanes, np.int32) + t.astype(np.int32)
            rows = {x: k.buffer((depth, lanes), q.dtype) for x in ("q", "g")}
            largest, total, delta = (k.variable(k.full(lanes, x, q.dtype)) for x in (-1e30, 0, 0))
            for d in k.range(depth):
                for name, x in (("q", q), ("g", g)):
                    rows[name].store(d, 0, value=x.load(b, h, t, d, width=lanes, axis=2, fill=0))
                delta.value += rows["g"].load(d, 0, width=lanes) * out.load(b, h, t, d, width=lanes, axis=2, fill=0)

            def dot(x, c, name, group=group, rows=rows, b=b):
                total = k.variable(k.full(lanes, 0, q.dtype))
                for d in k.range(depth):
                    total.value = k.fma(x[b, group, c, d], rows[name].load(d, 0, width=lanes), total.value)
                return total.value

            def scores(c, query=query, dot=dot, scale=scale):
                shown = (c.astype(np.int32) <= query) & (query < queries) if causal else query < queries
                return k.select(shown, dot(key, c, "q") * scale, -1e30)

            for c in k.range(keys):
                s = scores(c)
                new = k.maximum(largest.value, s)
                total.value = total.value * k.exp(largest.value - new) + k.exp(s - new)
                largest.value = new
            for c in k.range(keys):
                weight = k.select(query < queries, k.exp(scores(c) - largest.value) / total.value, 0)
                ds = weight * (dot(value, c, "g") - delta.value) * scale
                for d in k.range(depth):
                    dvalue[b, group, c, d] = dvalue[b, group, c, d] + (weight * rows["g"].load(d, 0, width=lanes)).sum()
                    dkey[b, group, c, d] = dkey[b, group, c, d] + (ds * rows["q"].load(d, 0, width=lanes)).sum()
                    old = dq.load(b, h, t, d, width=lanes, axis=2, fill=0)
                    dq.store(b, h, t, d, value=k.fma(ds, key[b, group, c, d], old), axis=2, masked=True)


@dlc.custom_vjp
def attention(q, key, value):
    """Causal flash attention with derivatives."""
    return flash_attention(q, key, value)


def _forward(q, key, value):
    out = flash_attention(q, key, value)
    return out, (q, key, value, out)


attention.defvjp(_forward, lambda residuals, g: attention_cotangents(*residuals, g))
