"""What only a person who debugs needs: which step makes numbers wrong (`bisect.py`), the smallest program that shows it
(`reduce.py`), where two programs part (`difference.py`; of compiled ones `launches.py`), where a NaN comes from
(`nans.py`), what a derivative keeps (`residuals.py`), whether kernels stay in their buffers (`accesses.py`), what is
computed while it is (`printing.py`)."""

from dlc.debug.nans import FirstNan, first_nan
from dlc.debug.printing import print
from dlc.debug.residuals import Residual, saved_residuals
from dlc.misuse import explain_misuse

__all__ = ["FirstNan", "Residual", "first_nan", "print", "saved_residuals"]

explain_misuse(globals())
