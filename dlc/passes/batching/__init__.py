"""Batches, as programs of the same ops: each value of a function with an axis for its lanes.

`expand_vmap.py` is the walk, `lanes.py` what it keeps of a value, `differences.py` which values differ between lanes at all.
The rules of ops are in `rules.py`, `contractions.py`, `places.py` and `control_flow.py`.
"""
