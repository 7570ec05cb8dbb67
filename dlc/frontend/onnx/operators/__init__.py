"""The operator tables of all families, and of the supported domains.

`arithmetic/`: elementwise operators; `reductions/`: reductions, normalizations, matrix products; `images/`: convolution,
pooling, resizing, sampling; `movement/`: data movement, indexing, sorting. `ml/` is the domain `ai.onnx.ml`, `microsoft.py`,
`transformers.py` and `quantized_layers.py` are ONNX Runtime's domain `com.microsoft`, `training.py` is
`ai.onnx.preview.training`.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc.frontend.onnx.operators import (
    conditionals,
    creation,
    loops,
    microsoft,
    ml,
    ngrams,
    quantized_layers,
    recurrence,
    sequences,
    strings,
    training,
    transformers,
)
from dlc.frontend.onnx.operators.arithmetic import activation, elementwise, quantization, random
from dlc.frontend.onnx.operators.images import convolution, pooling, regions, resize, sampling
from dlc.frontend.onnx.operators.movement import indexing, selection, shape, slicing, sorting
from dlc.frontend.onnx.operators.reductions import attention, contraction, normalization, reduction, signal
from dlc.frontend.onnx.registry import ConverterEntry, ConverterTable
from dlc.plugins.tables import ExtensionTable

FAMILIES = (
    elementwise, activation, reduction, contraction, convolution, pooling, normalization,
    shape, slicing, indexing, sorting, selection, creation, resize, sampling, regions, attention, signal,
    quantization, recurrence, conditionals, loops, sequences, strings, ngrams, random,
)  # fmt: skip


def _entries_of_domains(tables: Mapping[str, ConverterTable]) -> dict[tuple[str, str], list[ConverterEntry]]:
    return {(domain, name): entries for domain, table in tables.items() for name, entries in table.entries.items()}


OPERATORS: dict[str, list[ConverterEntry]] = {
    name: entries for family in FAMILIES for name, entries in family.table.entries.items()
}

# Operators of other domains, for every version of the domain, by domain and name.
OTHER_OPERATORS: ExtensionTable[tuple[str, str], list[ConverterEntry]] = ExtensionTable(
    "onnx_converters",
    {
        (domain, name): entries
        for domain, table in (
            (microsoft.DOMAIN, {**microsoft.table.entries, **transformers.table.entries, **quantized_layers.table.entries}),
            (ml.DOMAIN, ml.OPERATORS),
            (training.DOMAIN, training.table.entries),
        )
        for name, entries in table.items()
    },
    _entries_of_domains,
)
