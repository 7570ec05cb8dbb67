"""Passes of the first stage, on what a program computes.

`rewriting.py` is the walk that they share, `index_ranges.py` what is known of integers.

    simplification/   the same values by fewer and simpler ops
    movement/         transposes and reshapes out of the way; indices that are inside
    contractions/     other algorithms and orders of sums; factors into weights
    narrow_numbers/   integers and floats of 16 bits and fewer
    programs/         loops, sizes, what is counted
"""
