"""Measured peak rates of a machine or device.

A kernel that reaches one of these limits is only faster with fewer operations or less data.
"""

from __future__ import annotations

from dataclasses import dataclass

# Bytes that fit the second-level cache of one core, and bytes that exceed all caches.
CACHED_BYTES, UNCACHED_BYTES = 256 << 10, 128 << 20


@dataclass(frozen=True)
class Limits:
    """Peak rates per second: floating-point operations (a multiply-add is two), bytes from cache, bytes from memory."""

    flops: float
    cache: float
    memory: float

    def seconds(self, flops: float, bytes: float) -> float:
        """Return the minimum time for this much work, assuming that data that fits in the cache is cached."""
        return max(flops / self.flops, bytes / (self.cache if bytes <= CACHED_BYTES else self.memory))
