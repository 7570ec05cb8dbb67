"""Library kernels: ops with hand-written loops on buffers, once for all targets.

`values.py` and `builder.py` are the embedded language for these loops, `lower_kernel.py` makes kernels of them. The
kernels: matrix factorizations (`matrix_factorizations.py`, with `elimination.py`, `reflections.py` and
`eigenvalues.py`), cumulative sums and argmax (`axis_scans.py`), sorting (`sorting.py`), selection by rank
(`rank_selection.py`), indices of true elements (`true_indices.py`), non-maximum suppression
(`non_max_suppression.py`) and decision trees (`decision_trees.py`).
"""
