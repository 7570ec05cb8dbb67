"""Passes over whole `dl` programs: the first stage of the pipeline.

`rewriting.py` has the forward rewrite driver that the passes share, `index_ranges.py` the interval analysis of integers.

    simplification/   canonicalization, CSE, DCE, decomposition of composites
    movement/         data movement: transposes and reshapes that cancel or fold; index bounds checks
    contractions/     other algorithms and summation orders; scales folded into weights
    low_precision/    half precision, int8 and weight-only quantization
    programs/         loop-invariant code motion, unrolling, symbolic and data-dependent sizes
"""
