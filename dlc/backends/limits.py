"""What a machine or a device can do at most, as it was measured.

A kernel that reaches one of these limits cannot be made faster without doing less.
"""

from __future__ import annotations

from dataclasses import dataclass

# What the second-level cache of one core holds, and more than all caches hold.
NEAR, FAR = 256 << 10, 128 << 20


@dataclass(frozen=True)
class Limits:
    """The most of each per second: floating-point operations (f32, a multiply-add is two), bytes from cache and from memory."""

    flops: float
    cache: float
    memory: float

    def seconds(self, flops: float, bytes: float) -> float:
        """The least time that so much work takes; what the cache can hold may have been there."""
        return max(flops / self.flops, bytes / (self.cache if bytes <= NEAR else self.memory))
