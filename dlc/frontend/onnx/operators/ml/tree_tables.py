"""Trees as the tables of `dl.forest`: whatever a node asks, it becomes `number <= threshold`, with two ways to go.

    x < t       x <= the number before t            x >= t      -x <= -t, in a column that `x` is given
    x == t      x <= t, and if so -x <= -t          NaN         goes where the answer is no

A node at which a missing number, NaN, goes the way of a yes is asked the contrary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from dlc.dialects.dl.base import Array
from dlc.dialects.dl.procedures.trees import TREES_AT_ONCE
from dlc.errors import ModelError


class Ask(IntEnum):
    """What a node asks of a number, as the operator TreeEnsemble counts it; and leaves."""

    LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF = range(8)


# By what exporters call them before version 5.
MODES = {
    **{f"BRANCH_{ask.name}": ask for ask in (Ask.LEQ, Ask.LT, Ask.GTE, Ask.GT, Ask.EQ, Ask.NEQ)},
    "LEAF": Ask.LEAF,
}
_CONTRARY = {Ask.LEQ: Ask.GT, Ask.LT: Ask.GTE, Ask.GTE: Ask.LT, Ask.GT: Ask.LEQ}


@dataclass(frozen=True)
class Nodes:
    """The nodes of all trees, one entry of each array for a node; `yes` and `no` are the numbers of nodes."""

    ask: Array
    feature: Array
    threshold: Array
    yes: Array
    no: Array
    missing_is_yes: Array

    def __len__(self) -> int:
        return len(self.ask)

    def with_members(self, members: Sequence[Sequence[float]]) -> Nodes:
        """Each node that asks whether a number is one of several as a chain of nodes that ask about one."""
        where = np.flatnonzero(self.ask == Ask.MEMBER)
        added: list[tuple[int, int, float, int, int, bool]] = []
        columns = [c.copy() for c in (self.ask, self.feature, self.threshold, self.yes, self.no, self.missing_is_yes)]
        for node, several in zip(where, members, strict=True):
            feature, yes, no, missing = (int(c[node]) for c in (self.feature, self.yes, self.no, self.missing_is_yes))
            # Nothing is one of none; a missing number goes its way at the first.
            questions = [(Ask.EQ, feature, t, yes, no, bool(missing)) for t in several] or [
                (Ask.LT, feature, -np.inf, yes, no, bool(missing))
            ]
            for k in range(len(questions) - 1):
                questions[k] = (*questions[k][:4], len(self) + len(added) + k, questions[k][5])
            for column, value in zip(columns, questions[0], strict=True):
                column[node] = value
            added += questions[1:]
        more = (np.asarray([node[k] for node in added], column.dtype) for k, column in enumerate(columns))
        return Nodes(*(np.concatenate(pair) for pair in zip(columns, more, strict=True)))


@dataclass(frozen=True)
class Tables:
    """What `dl.forest` walks by; where `mirrored`, the columns of -x stand behind those of x."""

    nodes: Array
    roots: Array
    levels: Array
    mirrored: bool


def tables_of(where: str, nodes: Nodes, roots: Array, features: int) -> Tables:
    """The tables of the trees with these roots, for rows of so many features.

    Raises ModelError for nodes that lead outside of the tables, or around in a circle.
    """
    count = len(nodes)
    asking = nodes.ask != Ask.LEAF
    for name, numbers, most in (
        ("feature", nodes.feature[asking], features),
        ("node", nodes.yes, count),
        ("node", nodes.no, count),
        ("root", roots, count),
    ):
        if numbers.size and not (numbers.min() >= 0 and numbers.max() < most):
            wrong = int(numbers.min() if numbers.min() < 0 else numbers.max())
            raise ModelError(f"{where}: a tree names {name} {wrong} of {most}")
    asked = _without_equalities(nodes)
    table = _asking_at_most(asked, features)
    levels = _levels(where, table, asked.ask == Ask.LEAF, roots)
    levels = np.pad(levels, (0, -len(levels) % TREES_AT_ONCE)).reshape(-1, TREES_AT_ONCE).max(1)
    return Tables(table, roots.astype(np.int32), levels.astype(np.int32), bool((table[:, 0] >= features).any()))


def _without_equalities(nodes: Nodes) -> Nodes:
    """x == t as two questions, of which the second is a node of its own."""
    where = np.flatnonzero((nodes.ask == Ask.EQ) | (nodes.ask == Ask.NEQ))
    if not where.size:
        return nodes
    equal = nodes.ask[where] == Ask.EQ
    same, other = (np.where(equal, a[where], b[where]) for a, b in ((nodes.yes, nodes.no), (nodes.no, nodes.yes)))
    # NaN differs from any number; where it counts as one that is equal, x < t and x > t are what is asked.
    contrary = equal & nodes.missing_is_yes[where].astype(bool)
    behind = len(nodes) + np.arange(len(where))
    ask, yes, no = nodes.ask.copy(), nodes.yes.copy(), nodes.no.copy()
    ask[where] = np.where(contrary, Ask.LT, Ask.LEQ)
    yes[where], no[where] = np.where(contrary, other, behind), np.where(contrary, behind, other)
    missing = nodes.missing_is_yes.copy()
    missing[where] = False
    return Nodes(
        np.concatenate([ask, np.where(contrary, Ask.GT, Ask.GTE)]),
        np.concatenate([nodes.feature, nodes.feature[where]]),
        np.concatenate([nodes.threshold, nodes.threshold[where]]),
        np.concatenate([yes, np.where(contrary, other, same)]),
        np.concatenate([no, np.where(contrary, same, other)]),
        np.concatenate([missing, np.zeros(len(where), missing.dtype)]),
    )


def _asking_at_most(nodes: Nodes, features: int) -> Array:
    """The rows of the table: inequalities as `<=`."""
    leaf, missing = nodes.ask == Ask.LEAF, nodes.missing_is_yes.astype(bool)
    contrary = np.zeros(len(Ask), nodes.ask.dtype)
    contrary[list(_CONTRARY)] = list(_CONTRARY.values())
    ask = np.where(missing & ~leaf, contrary[nodes.ask], nodes.ask)
    mirrored, strict = np.isin(ask, (Ask.GTE, Ask.GT)), np.isin(ask, (Ask.LT, Ask.GT))
    threshold = np.where(mirrored, -nodes.threshold, nodes.threshold)
    # Nothing is below -inf: no number is at most NaN.
    before = np.where(np.isneginf(threshold), np.nan, np.nextafter(threshold, threshold.dtype.type(-np.inf)))
    threshold = np.where(strict, before, threshold)
    here = np.arange(len(nodes))
    integer = np.dtype(f"i{threshold.itemsize}")
    columns = (
        np.where(leaf, 0, nodes.feature + np.where(mirrored, features, 0)),
        threshold.astype(nodes.threshold.dtype).view(integer),
        np.where(leaf, here, np.where(missing, nodes.no, nodes.yes)),
        np.where(leaf, here, np.where(missing, nodes.yes, nodes.no)),
    )
    return np.ascontiguousarray(np.stack([c.astype(integer) for c in columns], 1))


def _levels(where: str, table: Array, leaf: Array, roots: Array) -> Array:
    """How many steps lead to the deepest leaf of each tree."""
    levels = np.zeros(len(roots), np.int64)
    at, tree = roots.astype(np.int64), np.arange(len(roots))
    for level in range(1, len(table) + 1):
        inner = ~leaf[at]
        at, tree = at[inner], tree[inner]
        if not at.size:
            return levels
        levels[tree] = level
        reached = np.concatenate([table[at, k].astype(np.int64) * len(roots) + tree for k in (2, 3)])
        at, tree = np.divmod(np.unique(reached), len(roots))
    if (~leaf[at]).any():
        raise ModelError(f"{where}: the nodes of a tree lead around in a circle")
    return levels
