"""What ATen's operators are, each in a few lines of `dlc.numpy`: one file per family."""

from dlc.pytorch.rules import (
    adjoints,
    contractions,
    creation,
    drawing,
    indexing,
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
    )
    for name, rule in family.table.rules.items()
}  # fmt: skip

# Those that take a key first.
DRAWN: dict[str, Rule] = drawing.table.rules
