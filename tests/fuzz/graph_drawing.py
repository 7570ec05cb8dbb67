"""A random graph: operators as their recipes draw them, bodies, sequences and text now and then."""

from __future__ import annotations

from tests.fuzz.graph_control import CONTROL
from tests.fuzz.graph_lists import LISTS
from tests.fuzz.graph_quantized import QUANTIZED
from tests.fuzz.graph_recipes import RECIPES as OF_TENSORS
from tests.fuzz.graph_recipes import Recipe
from tests.fuzz.graph_sequences import SEQUENCES
from tests.fuzz.graph_text import TEXTS
from tests.fuzz.random_graph import RandomGraph

# Of an operator that has two recipes either is taken.
_PLAIN = [*OF_TENSORS.items(), *QUANTIZED.items()]
_OTHERS = [*CONTROL.items(), *SEQUENCES.items(), *LISTS]
RECIPES: dict[str, Recipe] = {**dict(TEXTS), **dict(LISTS), **QUANTIZED, **CONTROL, **SEQUENCES, **OF_TENSORS}
OPERATORS = list(RECIPES)
# Those whose shapes hang on the elements of an operand.
_SHAPED = (
    "Reshape", "Expand", "Slice", "Pad", "Tile", "Split", "Resize", "TopK", "OneHot", "CenterCropPad", "ConstantOfShape", "Range",
    "Trilu", "Loop", "ConvTranspose", "NonZero", "Compress", "Unique",
)  # fmt: skip


def random_graph(seed: int) -> RandomGraph:
    """The graph of a seed, of a few nodes."""
    g = RandomGraph(seed)
    # One node in six or so has bodies, or is of sequences.
    g.recipes = TEXTS if g.random.random() < 0.05 else [*_PLAIN, *_OTHERS * (len(_PLAIN) // len(_OTHERS) // 4)]
    if g.how_often_computed and g.recipes is not TEXTS:
        g.recipes = [*g.recipes, *[(op, RECIPES[op]) for op in _SHAPED] * (len(_PLAIN) // len(_SHAPED))]
    size = g.random.choice([1, 1, 2, 3, 4, 6, 8])
    while not g.made:
        g.grow(g.step, size)
    g.in_sequences = g.opset >= 11 and g.random.random() < 0.1
    return g
