"""Whole loops as kernels.

loops_to_kernels.py     the pass
cost.py                 decides which loops become kernels
control_flow.py         emits a loop with its state in registers
element_ops.py          computes single elements of `dl` ops; element_body.py: inserts their scalar code
elements.py             represents the values
schedule.py             orders the ops of a body for updates in place
lanes.py                finds the lanes of a batch
lane_vectorization.py   computes vectors of lanes
reverse_loops.py        finds loops and their reverse
sequence_producers.py   fuses the ops on sequences between them
"""
