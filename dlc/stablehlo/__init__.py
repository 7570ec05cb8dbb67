"""StableHLO, as JAX prints it, into `dl`: `syntax.py` (what a module is), `parser.py` (its text), `reader.py` (op by op), then
the families of ops: `elementwise.py`, `moving.py`, `sums.py`.
"""

from dlc.stablehlo.reader import is_stablehlo, read_module

__all__ = ["is_stablehlo", "read_module"]
