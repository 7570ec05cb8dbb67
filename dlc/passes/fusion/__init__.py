"""Kernel fusion: form kernels from ops, and assign the layouts of the tensors between them.

`form_kernels.py` is the main pass: `fusion_groups.py` chooses the ops of a kernel, by `iteration_spaces.py`,
`producers.py` and `attention_patterns.py`; `outline.py` moves them into it. Then attention kernels are prepared
(`prepare_attention.py`, `query_vectorization.py`, on `dispatch_arguments.py` and `pack_arguments.py`), weights are
packed (`assign_layouts.py`, `panel_width.py`), buffers that are no longer needed are overwritten
(`reuse_donated.py`, `update_in_place.py`), and equal kernels are merged (`dedupe_kernels.py`).
"""
