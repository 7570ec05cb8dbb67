"""Kernels: which ops share one, and in what layouts they hand tensors to one another.

`form_kernels.py` is the walk: `spaces.py`, `weighted_sums.py` and `groups.py` decide what joins, `outline.py` writes it. Then
attention is prepared (`prepare_weighted_sums.py`, `queries_along_lanes.py`; `arguments.py` and `pack_arguments.py` are what its
kernels are given), weights are packed (`assign_layouts.py`, `panels.py`), arguments and states are written over where nobody
needs them any more (`reuse_donated.py`, `update_in_place.py`), and equal kernels become one (`dedupe_kernels.py`).
"""
