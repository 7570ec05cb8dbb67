"""StableHLO, as JAX prints it, into `dl`: `syntax.py` (what a module is), `tokens.py` and `parser.py` (its text), `reader.py`
(op by op), then the families of ops. Most build `dl` ops; `factors.py`, `special.py` and `complex_numbers.py` call
functions of `dlc.numpy`.
"""

from dlc.stablehlo.reader import is_stablehlo, read_module

__all__ = ["is_stablehlo", "read_module"]
