"""Draw random ONNX graphs: operators by their recipes, sometimes with subgraphs, sequences or strings."""

from __future__ import annotations

from tests.fuzz.graph_control import CONTROL
from tests.fuzz.graph_lists import LISTS
from tests.fuzz.graph_quantized import QUANTIZED
from tests.fuzz.graph_recipes import RECIPES as TENSOR_RECIPES
from tests.fuzz.graph_sequences import SEQUENCES
from tests.fuzz.graph_strings import STRING_OPS
from tests.fuzz.random_graph import RandomGraph, Recipe

# An operator may have several recipes.
_TENSOR_RECIPES = [*TENSOR_RECIPES.items(), *QUANTIZED.items()]
_NESTED_RECIPES = [*CONTROL.items(), *SEQUENCES.items(), *LISTS]
RECIPES: dict[str, Recipe] = {**dict(STRING_OPS), **dict(LISTS), **QUANTIZED, **CONTROL, **SEQUENCES, **TENSOR_RECIPES}
OPERATORS = list(RECIPES)
# Operators whose result shapes depend on the elements of an operand.
_SHAPE_OPERAND_OPS = (
    "Reshape", "Expand", "Slice", "Pad", "Tile", "Split", "Resize", "TopK", "OneHot", "CenterCropPad", "ConstantOfShape", "Range",
    "Trilu", "Loop", "ConvTranspose", "NonZero", "Compress", "Unique",
)  # fmt: skip


def random_graph(seed: int) -> RandomGraph:
    """Return the graph of a seed, with one to eight nodes."""
    g = RandomGraph(seed)
    # About one node in six has subgraphs or uses sequences.
    g.recipes = (
        STRING_OPS
        if g.random.random() < 0.05
        else [*_TENSOR_RECIPES, *_NESTED_RECIPES * (len(_TENSOR_RECIPES) // len(_NESTED_RECIPES) // 4)]
    )
    if g.computed_probability and g.recipes is not STRING_OPS:
        g.recipes = [
            *g.recipes,
            *[(op, RECIPES[op]) for op in _SHAPE_OPERAND_OPS] * (len(_TENSOR_RECIPES) // len(_SHAPE_OPERAND_OPS)),
        ]
    size = g.random.choice([1, 1, 2, 3, 4, 6, 8])
    while not g.op_results:
        g.grow(g.step, size)
    g.has_sequence_io = g.opset >= 11 and g.random.random() < 0.1
    return g
