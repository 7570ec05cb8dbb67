"""Special functions: with the names and definitions of `scipy.special`.

They accept the arguments and return the dtypes that functions of `dlc.numpy` do, and are differentiable. Errors are a few units
in the last place (ulp) unless a function states otherwise.
"""

from typing import Any

from dlc.argument_validation.validate import validate_arguments
from dlc.numpy.unsupported_names import UNSUPPORTED_SPECIAL_NAMES, raise_unsupported_name
from dlc.special.bessel import i0, i0e, i1, i1e
from dlc.special.decaying_bessel import k0, k0e, k1, k1e
from dlc.special.error_functions import erf, erfc, erfcx, erfinv, log_ndtr, ndtr, ndtri
from dlc.special.gamma import digamma, gammaln
from dlc.special.incomplete_beta import betainc, betaln
from dlc.special.incomplete_gamma import gammainc, gammaincc
from dlc.special.oscillating_bessel import j0, j1, y0, y1
from dlc.special.probabilities import entr, expit, log_expit, logit, logsumexp, xlog1py, xlogy
from dlc.special.zeta import polygamma, zeta

__all__ = [
    "betainc", "betaln", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "expit", "gammainc", "gammaincc", "gammaln", "i0",
    "i0e", "i1", "i1e", "j0", "j1", "k0", "k0e", "k1", "k1e", "log_expit", "log_ndtr", "logit", "logsumexp", "ndtr",
    "ndtri", "polygamma", "xlog1py", "xlogy", "y0", "y1", "zeta",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    raise_unsupported_name("dlc.special", name, UNSUPPORTED_SPECIAL_NAMES)


validate_arguments(globals())
