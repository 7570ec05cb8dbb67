"""Batching (vmap) of `dl` functions: each value that varies over the batch gets a batch axis.

expand_vmap.py        walks the ops
batching_context.py   maps values to their batched counterparts
batched_values.py     finds which values of loops are batched
rules.py              rules of elementwise ops, of ops along axes or rows, and of data-movement ops
contractions.py       rules of contractions; indexing.py: of gathers and scatters; control_flow.py: of loops and branches
loop_bodies.py        batches the body of a library kernel
masked_updates.py     masks updates of rows in loops that some batch elements have left
"""
