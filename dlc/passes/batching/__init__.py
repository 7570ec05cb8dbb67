"""Batching (vmap) of `dl` functions: each value that varies over the batch gets a batch axis.

`expand_vmap.py` walks the ops, `batching_context.py` maps values to their batched counterparts, `batched_values.py` finds
which values of loops are batched. The batching rules of ops are in `rules.py`, `contractions.py`, `indexing.py` and
`control_flow.py`.
"""
