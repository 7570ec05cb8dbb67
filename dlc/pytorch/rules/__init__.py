"""Rules of ATen operators, each a few lines of `dlc.numpy`, one file per family."""

from dlc.plugins.tables import ExtensionTable
from dlc.pytorch.rules import (
    attention,
    backward_ops,
    complex_numbers,
    contractions,
    control_flow,
    creation,
    data_dependent_shapes,
    dynamic_quantization,
    embedding,
    fake_quantization,
    foreach,
    fourier,
    grid_sampling,
    grouped_products,
    indexing,
    interpolation,
    linear_algebra,
    losses,
    normalization,
    orthogonal_polynomials,
    pointwise,
    pooling,
    pooling_backward,
    quantization,
    random_numbers,
    reductions,
    segments,
    shape_manipulation,
    sorting,
    symbolic_sizes,
)
from dlc.pytorch.rules.rule_table import Rule

_BUILTIN_RULES: dict[str, Rule] = {
    name: rule
    for family in (
        pointwise, reductions, shape_manipulation, indexing, embedding, creation, contractions, attention,
        normalization, foreach, pooling, interpolation, backward_ops, symbolic_sizes, fourier, complex_numbers,
        linear_algebra, control_flow, sorting, grouped_products, grid_sampling, pooling_backward, data_dependent_shapes,
        fake_quantization, quantization, orthogonal_polynomials, dynamic_quantization, losses, segments,
    )
    for name, rule in family.table.rules.items()
} | {"higher_order.run_with_rng_state": random_numbers.replay_rng_state}  # fmt: skip
RULES: ExtensionTable[str, Rule] = ExtensionTable("pytorch_rules", _BUILTIN_RULES)

# Random operators: these rules take a key as an additional first argument.
RANDOM_RULES: dict[str, Rule] = random_numbers.table.rules

# Rules for complex operands, of operators whose rule supports only real ones.
COMPLEX_RULES: dict[str, Rule] = {
    **{
        name: complex_numbers.componentwise(_BUILTIN_RULES[name], value_positions)
        for name, value_positions in complex_numbers.COMPONENTWISE_OPS.items()
    },
    **complex_numbers.complex_table.rules,
}
