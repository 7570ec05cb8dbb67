"""What ATen's operators are, each in a few lines of `dlc.numpy`: one file per family."""

from dlc.pytorch.rules import (
    adjoints,
    contractions,
    control,
    counting,
    creation,
    drawing,
    fourier,
    indexing,
    matrices,
    normalization,
    pointwise,
    reductions,
    resizing,
    shaping,
    sizes,
    windows,
)
from dlc.pytorch.rules.table import Rule

RULES: dict[str, Rule] = {
    name: rule
    for family in (
        pointwise, reductions, shaping, indexing, creation, contractions, normalization, windows, resizing, adjoints, sizes,
        fourier, matrices, control,
    )
    for name, rule in family.table.rules.items()
}  # fmt: skip

# Those that take a key first.
DRAWN: dict[str, Rule] = drawing.table.rules

# Those that take a symbol first, for a size that data decides.
COUNTED: dict[str, Rule] = counting.table.rules

# What operators are of complex numbers, where that is something else.
OF_COMPLEX: dict[str, Rule] = {
    **{name: fourier.by_parts(RULES[name]) for name in fourier.BY_PARTS if name in RULES},
    **fourier.of_complex.rules,
}
