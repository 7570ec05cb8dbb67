"""An energy and its gradient, for programs in other languages:

dlc compile examples/deploy/energy.py:value_and_gradient --shape x=8 --dtype x=float64 -o energy.so
"""

import dlc


def energy(x):
    """Return the energy of a chain of particles in double wells, with springs between neighbors."""
    springs = x[1:] - x[:-1]
    return (x**4 - 2 * x**2).sum() + 0.5 * (springs * springs).sum()


value_and_gradient = dlc.value_and_grad(energy)
