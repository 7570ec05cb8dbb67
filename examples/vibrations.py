"""How a water molecule vibrates: its frequencies from the second derivatives of its energy.

    python examples/vibrations.py

The energy is that of springs along the bonds and of the angle between them; a step of Newton's method finds where it is
least, and the Hessian there, divided by the masses, has the squares of the frequencies as eigenvalues.
"""

from __future__ import annotations

import numpy as np

import dlc
import dlc.numpy as dnp

# Atomic units: lengths in Bohr radii, energies in hartrees, masses in those of the electron. O, H, H.
MASSES = np.array([15.9949, 1.00783, 1.00783]) * 1822.888
BOND, ANGLE = 1.809, np.deg2rad(104.5)
STIFFNESS, BENDING = 0.54, 0.16
WAVENUMBER = 219474.63  # of one hartree, in 1/cm


def energy(positions):
    """Of three atoms [3, 3] in atomic units."""
    first, second = positions[1] - positions[0], positions[2] - positions[0]
    a, b = dnp.sqrt((first * first).sum()), dnp.sqrt((second * second).sum())
    angle = dnp.acos((first * second).sum() / (a * b))
    return STIFFNESS / 2 * ((a - BOND) ** 2 + (b - BOND) ** 2) + BENDING / 2 * (angle - ANGLE) ** 2


@dlc.jit
def expansion(positions):
    """The energy, its gradient [9] and its Hessian [9, 9]."""
    flat = positions.reshape(-1)
    of_flat = lambda x: energy(x.reshape(3, 3))  # noqa: E731
    value, gradient = dlc.value_and_grad(of_flat)(flat)
    return value, gradient, dlc.hessian(of_flat)(flat)


def relaxed(positions: np.ndarray) -> np.ndarray:
    """Positions of least energy near these, by Newton's method; what moves the molecule as a whole is left out."""
    while True:
        _, gradient, hessian = map(np.asarray, expansion(positions))
        if np.abs(gradient).max() < 1e-10:
            return positions
        positions = positions - (np.linalg.pinv(hessian, 1e-6) @ gradient).reshape(3, 3)


def frequencies(positions: np.ndarray) -> np.ndarray:
    """Of the three vibrations, in 1/cm."""
    hessian = np.asarray(expansion(positions)[2])
    roots = np.sqrt(np.repeat(MASSES, 3))
    squares = np.linalg.eigvalsh(hessian / roots / roots[:, None])
    return np.sqrt(squares[-3:]) * WAVENUMBER


def main() -> None:
    positions = relaxed(np.array([[0.0, 0.0, 0.1], [1.6, 0.1, -1.0], [-1.5, 0.0, -1.1]]))
    bend, symmetric, asymmetric = frequencies(positions)
    print(f"bend {bend:.0f}, symmetric stretch {symmetric:.0f}, asymmetric stretch {asymmetric:.0f} 1/cm")


if __name__ == "__main__":
    main()
