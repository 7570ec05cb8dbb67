"""Random numbers that are computed: a key and a shape give the same numbers on every target, in every version.

    key, own = dlc.random.split(dlc.random.key(0))
    noise = dlc.random.normal(own, (3, 4))

The functions have the names and arguments of JAX's, and give its numbers for the same key. A key is an array of two uint32
words. Numbers drawn from a key twice are the same numbers, so a key is drawn from once: `split` makes independent keys of
one, `fold_in` one key for each number. Inside of a traced function drawing from a key again is an error that names both
lines, unless `reuse=True` says that the same numbers are wanted. To draw, to split and to permute count; `fold_in` does
not. Keys are the same if they are computed in the same way from the same values. In a loop of `dlc.lax` a key has to depend
on what changes from step to step; branches of which one runs may draw from the same key.
"""

from dlc.misuse import explain_misuse
from dlc.random.choices import categorical, choice, permutation
from dlc.random.draws import bernoulli, bits, gumbel, normal, randint, truncated_normal, uniform
from dlc.random.keys import Stream, fold_in, key, split

__all__ = [
    "Stream", "bernoulli", "bits", "categorical", "choice", "fold_in", "gumbel", "key", "normal", "permutation", "randint",
    "split", "truncated_normal", "uniform",
]  # fmt: skip

explain_misuse(globals())
