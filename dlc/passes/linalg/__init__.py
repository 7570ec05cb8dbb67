"""Lowering of kernels to structured ops (linalg) on tensors, in destination-passing style.

`lower_kernels_to_linalg.py` walks the ops of a kernel, `lowerings.py` has one lowering per op interface. Operands are read
through data-movement ops by `source_reads.py`; results are built by `linalg_builder.py` in `destinations.py`.
`fuse_generics.py` fuses an op with its elementwise producers.
"""
