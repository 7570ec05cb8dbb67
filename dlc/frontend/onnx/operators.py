"""Every ONNX operator that dlc reads: the families' tables, joined."""

from __future__ import annotations

from dlc.frontend.onnx import (
    activation,
    attention,
    contraction,
    control,
    convolution,
    creation,
    elementwise,
    indexing,
    movement,
    normalization,
    pooling,
    quantization,
    recurrence,
    reduction,
    regions,
    resize,
    sampling,
    selection,
    sequences,
    shape,
    signal,
    sorting,
)
from dlc.frontend.onnx.registry import Entry

FAMILIES = (
    elementwise, activation, reduction, contraction, convolution, pooling, normalization,
    shape, movement, indexing, sorting, selection, creation, resize, sampling, regions, attention, signal,
    quantization, recurrence, control, sequences,
)  # fmt: skip

OPERATORS: dict[str, list[Entry]] = {name: entries for family in FAMILIES for name, entries in family.table.entries.items()}
