"""Conditions on indices that follow from comparisons."""

from __future__ import annotations

from dlc.kernels.index_ranges import Fact, LinearForm
from dlc.kernels.index_sets import RANGES
from dlc.kernels.kernel_trace import KernelTrace


def comparison_facts(trace: KernelTrace, predicate: str, a: LinearForm, b: LinearForm) -> list[Fact]:
    """Return the conditions on indices that follow from a comparison."""
    difference = a - b
    if predicate not in RANGES:
        return []
    interval = RANGES[predicate]
    a_range, b_range = trace.range_of(a), trace.range_of(b)
    facts = [
        Fact(difference.terms, interval - difference.constant),
        # a = (a - b) + b, and b = a - (a - b)
        Fact(a.terms, interval + b_range - a.constant),
        Fact(b.terms, -interval + a_range - b.constant),
    ]
    return [f for fact in facts for f in ((fact, fact.negated()) if fact.terms else (fact,))]
