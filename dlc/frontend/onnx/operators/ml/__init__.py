"""The operators of ONNX's domain for classical models, `ai.onnx.ml`, which exporters of scikit-learn and its like write.

Features before a model (`features.py`, `labels.py`, `dictionaries.py`), linear models and support vectors, which are products
with matrices (`linear.py`, `support_vectors.py`), and trees (`tree_tables.py`, `trees.py`).
"""

from __future__ import annotations

from dlc.frontend.onnx.operators.ml import dictionaries, features, labels, linear, support_vectors, trees
from dlc.frontend.onnx.registry import Entry

DOMAIN = "ai.onnx.ml"
FAMILIES = (dictionaries, features, labels, linear, support_vectors, trees)
OPERATORS: dict[str, list[Entry]] = {name: entries for family in FAMILIES for name, entries in family.table.entries.items()}
