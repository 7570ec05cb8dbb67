"""What ATen's operators are, each in a few lines of `dlc.numpy`: one file per family."""

from dlc.pytorch.rules import (
    adjoints,
    attending,
    complex_numbers,
    contractions,
    control,
    counting,
    creation,
    drawing,
    embedding,
    experts,
    fourier,
    indexing,
    lists,
    matrices,
    normalization,
    ordering,
    pointwise,
    quantizing,
    reductions,
    resizing,
    sampling,
    shaping,
    sizes,
    window_adjoints,
    windows,
)
from dlc.pytorch.rules.table import Rule

RULES: dict[str, Rule] = {
    name: rule
    for family in (
        pointwise, reductions, shaping, indexing, embedding, creation, contractions, attending, normalization, lists, windows,
        resizing, adjoints, sizes, fourier, complex_numbers, matrices, control, ordering, experts, sampling, window_adjoints,
        counting, quantizing,
    )
    for name, rule in family.table.rules.items()
} | {"higher_order.run_with_rng_state": drawing.drawn_again}  # fmt: skip

# Those that take a key first.
DRAWN: dict[str, Rule] = drawing.table.rules

# What operators are of complex numbers, where that is something else.
OF_COMPLEX: dict[str, Rule] = {
    **{name: complex_numbers.by_parts(RULES[name]) for name in complex_numbers.BY_PARTS},
    **complex_numbers.of_complex.rules,
}
