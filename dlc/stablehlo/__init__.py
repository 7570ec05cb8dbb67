"""The StableHLO importer, for modules as JAX prints them.

Suggested reading order: `syntax.py` (the records of a module), `tokens.py` and `parser.py` (its text), `reader.py` (op by op),
then the op families. Most build `dl` ops; `linear_algebra.py`, `special_functions.py`, `random_bits.py` and
`complex_numbers.py` call functions of `dlc.numpy`. `storage_types.py` computes on narrow types in wider ones.
"""

from dlc.stablehlo.reader import is_stablehlo, read_module

__all__ = ["is_stablehlo", "read_module"]
