"""An attribute of `scf.for`: whoever compiles its text writes its iterations one by one."""

UNROLLED = "unrolled"
