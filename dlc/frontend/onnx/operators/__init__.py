"""Every operator that dlc reads: the tables of ONNX's families, joined, and those of other domains.

Of each element by itself: `arithmetic/`; of many: `reductions/`; of pictures and volumes: `images/`; what goes elsewhere:
`movement/`. The domain of classical models is `ml/`; ONNX Runtime's own are `microsoft.py` and `transformers.py`, that of
optimisers `training.py`. What is of no such kind is a file here.
"""

from __future__ import annotations

from dlc.frontend.onnx.operators import (
    branches,
    control,
    creation,
    microsoft,
    ml,
    ngrams,
    recurrence,
    sequences,
    text,
    training,
    transformers,
)
from dlc.frontend.onnx.operators.arithmetic import activation, elementwise, quantization, random
from dlc.frontend.onnx.operators.images import convolution, pooling, regions, resize, sampling
from dlc.frontend.onnx.operators.movement import indexing, joining, selection, shape, sorting
from dlc.frontend.onnx.operators.reductions import attention, contraction, normalization, reduction, signal
from dlc.frontend.onnx.registry import Entry

FAMILIES = (
    elementwise, activation, reduction, contraction, convolution, pooling, normalization,
    shape, joining, indexing, sorting, selection, creation, resize, sampling, regions, attention, signal,
    quantization, recurrence, branches, control, sequences, text, ngrams, random,
)  # fmt: skip

OPERATORS: dict[str, list[Entry]] = {name: entries for family in FAMILIES for name, entries in family.table.entries.items()}

# By domain, in any version.
OTHER_OPERATORS: dict[str, dict[str, list[Entry]]] = {
    microsoft.DOMAIN: {**microsoft.table.entries, **transformers.table.entries},
    ml.DOMAIN: ml.OPERATORS,
    training.DOMAIN: training.table.entries,
}
