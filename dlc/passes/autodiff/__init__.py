"""Automatic differentiation of `dl` programs: forward mode (jvp) and reverse mode (vjp).

Both modes use one rule per op. An op without a rule is decomposed first.

forward_mode.py           inserts tangents next to the values of a block
reverse_mode.py           appends cotangents; cotangents.py: masked ones, and those of slices
rules.py                  finds the values that depend on the differentiated ones
partials.py               partial derivatives of elementwise ops
transpose_rules.py        transposes of linear ops; contraction_transposes.py, indexing_transposes.py, collective_transposes.py
jvp_rules.py              rules of other ops, which emit linear ops that reverse mode transposes
term.py                   formulas of rules; shapes.py: their shapes
control_flow_rules.py     rules of ops with bodies: scans.py, while_loops.py, branches.py, custom_rules.py
differentiated_step.py    a step of a loop and its reverse in one body
recomputation.py          chooses between saving and recomputation, by a minimum cut (minimum_cut.py)
binomial_checkpoints.py   reverses a loop from a few saved states; loop_memory.py: splits scans for it
bodies.py                 clones and rewrites bodies; loop_building.py: builds loops and branches
"""
