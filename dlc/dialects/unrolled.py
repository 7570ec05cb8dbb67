"""Attributes of `scf.for`: whoever compiles its text writes its iterations one by one, or keeps it a loop."""

UNROLLED, ROLLED = "unrolled", "rolled"
