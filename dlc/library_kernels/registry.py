"""The loops of each library op."""

from __future__ import annotations

from collections.abc import Mapping

from dlc.dialects import dl
from dlc.dialects.dl.interfaces import LibraryKernel
from dlc.library_kernels import matrix_factorizations
from dlc.library_kernels.axis_scans import accumulate, arg_extremum
from dlc.library_kernels.bitonic_sort import bitonic_sort
from dlc.library_kernels.decision_trees import forest
from dlc.library_kernels.non_max_suppression import non_max_suppression
from dlc.library_kernels.partition import partition
from dlc.library_kernels.sorting import smallest, sort_columns, sort_digits
from dlc.library_kernels.trace_body import traced
from dlc.library_kernels.true_indices import true_indices
from dlc.passes.linalg.library_kernels import BodyTracer
from dlc.plugins.tables import ExtensionTable

_BUILTIN: dict[type[LibraryKernel], BodyTracer] = {
    dl.AccumulateOp: traced(accumulate),
    dl.ArgExtremumOp: traced(arg_extremum),
    dl.BitonicSortOp: traced(bitonic_sort),
    dl.NetworkSortOp: traced(sort_columns),
    dl.RadixSortOp: traced(sort_digits),
    dl.SmallestKOp: traced(smallest),
    dl.PartitionOp: traced(partition),
    dl.TreeEnsembleOp: traced(forest),
    dl.TrueIndicesOp: traced(true_indices),
    dl.SuppressOverlapsOp: traced(non_max_suppression, is_batched=True),
    **{op: traced(rule, is_batched=True) for op, rule in matrix_factorizations.RULES.items()},
}
LIBRARY_KERNELS: Mapping[type[LibraryKernel], BodyTracer] = ExtensionTable(
    "library_kernels", _BUILTIN, lambda rules: {op: traced(rule) for op, rule in rules.items()}
)
