"""Derivatives, as programs of the same ops.

`forward.py` puts tangents beside the values of a block, `reverse.py` appends the cotangents. Both read one rule an op: a
partial derivative (`partials.py`), a transpose where the op is linear (`transposes.py`, with those of contractions and of
lookups), a tangent by other linear ops (`tangents.py`), which is transposed op by op in reverse mode; what has a decomposition
and none of these is decomposed first. Rules are formulas of terms (`term.py`, `shapes.py`). Loops and branches are in
`control.py`.
"""
