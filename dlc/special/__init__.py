"""Special functions: with the names and definitions of `scipy.special`.

They accept the arguments and return the dtypes that functions of `dlc.numpy` do, and are differentiable. Errors are a few units
in the last place (ulp) unless a function states otherwise.
"""

from typing import Any

from dlc.argument_validation.validate import validate_arguments
from dlc.numpy.unsupported_names import UNSUPPORTED_SPECIAL_NAMES, raise_unsupported_name
from dlc.special.bessel import i0, i0e, i1, i1e
from dlc.special.decaying_bessel import k0, k0e, k1, k1e
from dlc.special.distributions import (
    bdtr,
    bdtrc,
    betaincc,
    chdtr,
    chdtrc,
    erfcinv,
    fdtr,
    fdtrc,
    gdtr,
    gdtrc,
    pdtr,
    pdtrc,
    stdtr,
)
from dlc.special.elementary import (
    boxcox,
    boxcox1p,
    cosm1,
    exp10,
    exprel,
    huber,
    inv_boxcox,
    inv_boxcox1p,
    kl_div,
    log_softmax,
    pseudo_huber,
    rel_entr,
    softmax,
    softplus,
)
from dlc.special.elliptic import ellipe, ellipk, ellipkm1
from dlc.special.error_functions import erf, erfc, erfcx, erfinv, log_ndtr, ndtr, ndtri
from dlc.special.factorials import beta, binom, comb, factorial, gamma, gammasgn, multigammaln, perm, poch, rgamma
from dlc.special.gamma import digamma, gammaln
from dlc.special.incomplete_beta import betainc, betaln
from dlc.special.incomplete_gamma import gammainc, gammaincc
from dlc.special.integer_order_bessel import jn, kn, yn
from dlc.special.oscillating_bessel import j0, j1, y0, y1
from dlc.special.probabilities import entr, expit, log_expit, logit, logsumexp, xlog1py, xlogy
from dlc.special.zeta import polygamma, zeta

__all__ = [
    "bdtr", "bdtrc", "beta", "betainc", "betaincc", "betaln", "binom", "boxcox", "boxcox1p", "chdtr", "chdtrc", "comb",
    "cosm1", "digamma", "ellipe", "ellipk", "ellipkm1", "entr", "erf", "erfc", "erfcinv", "erfcx", "erfinv", "exp10",
    "expit", "exprel", "factorial", "fdtr", "fdtrc", "gamma", "gammainc", "gammaincc", "gammaln", "gammasgn", "gdtr",
    "gdtrc", "huber", "i0", "i0e", "i1", "i1e", "inv_boxcox", "inv_boxcox1p", "j0", "j1", "jn", "k0", "k0e", "k1", "k1e",
    "kl_div", "kn", "log_expit", "log_ndtr", "log_softmax", "logit", "logsumexp", "multigammaln", "ndtr", "ndtri", "pdtr",
    "pdtrc", "perm", "poch", "polygamma", "pseudo_huber", "psi", "rel_entr", "rgamma", "softmax", "softplus", "stdtr",
    "xlog1py", "xlogy", "y0", "y1", "yn", "zeta",
]  # fmt: skip

# SciPy's other name of the function.
psi = digamma


def __getattr__(name: str) -> Any:
    raise_unsupported_name("dlc.special", name, UNSUPPORTED_SPECIAL_NAMES)


validate_arguments(globals())
