"""Operators of the domain `ai.onnx.ml` for classical models, as exported from scikit-learn and similar libraries.

Feature preprocessing (`features.py`, `labels.py`, `dictionaries.py`), linear models and support vector machines, which are
matrix products (`linear.py`, `support_vectors.py`), and tree ensembles (`tree_tables.py`, `trees.py`).
"""

from __future__ import annotations

from dlc.frontend.onnx.operators.ml import dictionaries, features, labels, linear, support_vectors, trees
from dlc.frontend.onnx.registry import ConverterEntry

DOMAIN = "ai.onnx.ml"
FAMILIES = (dictionaries, features, labels, linear, support_vectors, trees)
OPERATORS: dict[str, list[ConverterEntry]] = {
    name: entries for family in FAMILIES for name, entries in family.table.entries.items()
}
