"""Program-level passes: loop-invariant code motion, loop unrolling, binding of symbolic dimensions, data-dependent sizes."""
