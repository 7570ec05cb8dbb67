"""Automatic differentiation of `dl` programs: forward mode (jvp) and reverse mode (vjp).

`forward_mode.py` inserts tangents next to the values of a block, `reverse_mode.py` appends cotangents. Both use one rule per
op. Elementwise ops have a partial derivative (`partials.py`), linear ops a transpose rule (`transpose_rules.py`,
`contraction_transposes.py` and `indexing_transposes.py`). Other ops have a jvp rule (`jvp_rules.py`) that emits linear ops,
which reverse mode transposes. An op without a rule is decomposed first. Rules are formulas of terms (`term.py`, `shapes.py`).
Loops, branches and custom rules are in `control_flow_rules.py`.
"""
