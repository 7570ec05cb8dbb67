"""Debugging tools.

- `bisect.py` finds the step that makes results wrong; `reduce.py` finds a minimal program that fails in the same way
- `difference.py` compares two programs; `launches.py` traces compiled ones
- `nan_origin.py` finds the origin of a NaN, `residuals.py` lists the residuals of a derivative
- `bounds_check.py` checks buffer accesses, `printing.py` prints values at run time
"""

from dlc.argument_validation.validate import validate_arguments
from dlc.debug.nan_origin import FirstNan, first_nan
from dlc.debug.printing import print
from dlc.debug.residuals import Residual, saved_residuals

__all__ = ["FirstNan", "Residual", "first_nan", "print", "saved_residuals"]

validate_arguments(globals())
