"""Kernels as structured ops on tensors that are written where they are told.

`lower_kernels_to_linalg.py` is the walk over a kernel, `lowerings.py` has one lowering for each interface of the ops. Values
are read by `reads.py`, through ops that only move elements, and written by `write.py` to `destinations.py`.
`fuse_generics.py` makes one structured op of an op and what is elementwise before it.
"""
