"""Special functions: with the names and the meanings that `scipy.special` gives them.

They take what functions of `dlc.numpy` take, give the dtype that those would, and have derivatives. Errors are a few units in
the last place unless a function says otherwise.
"""

from typing import Any

from dlc.misuse import explain_misuse
from dlc.numpy.absent import SPECIAL_ABSENT, raise_absent
from dlc.special.bessel import i0, i0e, i1, i1e
from dlc.special.gamma import digamma, gammaln
from dlc.special.normal import erf, erfc, erfcx, erfinv, log_ndtr, ndtr
from dlc.special.probabilities import entr, expit, log_expit, logit, logsumexp, xlog1py, xlogy
from dlc.special.zeta import polygamma, zeta

__all__ = [
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "expit", "gammaln", "i0", "i0e", "i1", "i1e", "log_expit", "log_ndtr",
    "logit", "logsumexp", "ndtr", "polygamma", "xlog1py", "xlogy", "zeta",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    raise_absent("dlc.special", name, SPECIAL_ABSENT)


explain_misuse(globals())
