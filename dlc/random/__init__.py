"""Counter-based random numbers: a key and a shape determine the values, on every target and in every version.

    key, subkey = dlc.random.split(dlc.random.key(0))
    noise = dlc.random.normal(subkey, (3, 4))

The functions have the names and arguments of JAX's, and return its values for the same key. A key is an array of two uint32
words. Drawing from a key twice returns the same values, so each key is consumed once: `split` derives independent keys from a
key, `fold_in` derives a key for an integer. In a traced function, consuming a key again is an error that names both lines,
unless `reuse=True`. Drawing, splitting and permuting consume a key; `fold_in` does not. Two keys are the same if they are
computed by the same ops from the same values. In a loop of `dlc.lax`, a key must depend on a value that changes in each step;
branches of which only one runs may consume the same key.
"""

from dlc.argument_validation.validate import validate_arguments
from dlc.random.choices import categorical, choice, permutation
from dlc.random.distributions import (
    bernoulli,
    bits,
    cauchy,
    exponential,
    gumbel,
    laplace,
    logistic,
    normal,
    randint,
    truncated_normal,
    uniform,
)
from dlc.random.gamma import beta, chisquare, dirichlet, gamma, loggamma, t
from dlc.random.keys import Stream, fold_in, key, split
from dlc.random.multivariate import multivariate_normal
from dlc.random.poisson import poisson

__all__ = [
    "Stream", "bernoulli", "beta", "bits", "categorical", "cauchy", "chisquare", "choice", "dirichlet", "exponential",
    "fold_in", "gamma", "gumbel", "key", "laplace", "loggamma", "logistic", "multivariate_normal", "normal", "permutation",
    "poisson", "randint", "split", "t", "truncated_normal", "uniform",
]  # fmt: skip

validate_arguments(globals())
