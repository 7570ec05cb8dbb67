"""Program-level passes: loop-invariant code motion, loop unrolling, stacked scan states, symbolic and data-dependent sizes."""
