"""Library kernels: ops whose loops are written by hand, once for all targets.

The loops are written in an embedded language (`values.py`, `builder.py`); `lower_kernel.py` lowers kernels to them.
The kernels are matrix factorizations (`matrix_factorizations.py`, with `elimination.py`, `reflections.py` and
`eigenvalues.py`), cumulative sums and argmax (`axis_scans.py`), sorting (`sorting.py`), selection by rank
(`rank_selection.py`), indices of true elements (`true_indices.py`), non-maximum suppression
(`non_max_suppression.py`) and decision trees (`decision_trees.py`).
"""
