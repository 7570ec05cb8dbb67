"""Automatic differentiation of `dl` programs: forward mode (jvp) and reverse mode (vjp).

`forward_mode.py` inserts tangents next to the values of a block, `reverse_mode.py` appends cotangents. Both use one rule per
op: a partial derivative for elementwise ops (`partials.py`), a transpose rule for linear ops (`transpose_rules.py`, with
`contraction_transposes.py` and `indexing_transposes.py`), or a jvp rule (`jvp_rules.py`) that emits linear ops, which
reverse mode transposes. Ops with a decomposition and none of these are decomposed first. Rules are formulas of terms
(`term.py`, `shapes.py`). Loops, branches and custom rules are in `control_flow_rules.py`.
"""
