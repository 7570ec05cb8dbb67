"""Attributes of `scf.for` for code generation: unroll the loop, or keep it rolled."""

UNROLLED, ROLLED = "unrolled", "rolled"
