"""Whole loops as kernels.

`loops_to_kernels.py` is the pass, `lowering.py` and `control_flow.py` emit a loop with its state in registers, `element_ops.py`
computes single elements of `dl` ops, `elements.py` represents the values, `schedule.py` orders the ops of a body for updates in
place, and `cost.py` decides which loops become kernels.
"""
