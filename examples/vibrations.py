"""Compute the vibrational frequencies of a water molecule from the second derivatives of its energy.

    python examples/vibrations.py

The energy model has springs along the two bonds and on the angle between them. Newton's method finds the equilibrium; the
eigenvalues of the mass-weighted Hessian there are the squared frequencies.
"""

from __future__ import annotations

import numpy as np

import dlc
import dlc.numpy as dnp

# Atomic units: lengths in Bohr radii, energies in hartrees, masses in electron masses. The atoms are O, H, H.
MASSES = np.array([15.9949, 1.00783, 1.00783]) * 1822.888
BOND, ANGLE = 1.809, np.deg2rad(104.5)
STIFFNESS, BENDING = 0.54, 0.16
WAVENUMBERS_PER_HARTREE = 219474.63  # in 1/cm


def energy(positions):
    """Return the energy of three atoms at positions [3, 3]."""
    first, second = positions[1] - positions[0], positions[2] - positions[0]
    a, b = dnp.sqrt((first * first).sum()), dnp.sqrt((second * second).sum())
    angle = dnp.acos((first * second).sum() / (a * b))
    return STIFFNESS / 2 * ((a - BOND) ** 2 + (b - BOND) ** 2) + BENDING / 2 * (angle - ANGLE) ** 2


@dlc.jit
def derivatives(positions):
    """Return the energy, its gradient [9] and its Hessian [9, 9]."""

    def flat_energy(x):
        return energy(x.reshape(3, 3))

    x = positions.reshape(-1)
    value, gradient = dlc.value_and_grad(flat_energy)(x)
    return value, gradient, dlc.hessian(flat_energy)(x)


def equilibrium(positions: np.ndarray) -> np.ndarray:
    """Find the nearest positions of minimal energy with Newton's method."""
    while True:
        _, gradient, hessian = map(np.asarray, derivatives(positions))
        if np.abs(gradient).max() < 1e-10:
            return positions
        # The pseudo-inverse ignores translations and rotations of the whole molecule, which do not change the energy.
        positions = positions - (np.linalg.pinv(hessian, 1e-6) @ gradient).reshape(3, 3)


def frequencies(positions: np.ndarray) -> np.ndarray:
    """Return the frequencies of the three vibrations, in 1/cm."""
    hessian = np.asarray(derivatives(positions)[2])
    sqrt_masses = np.sqrt(np.repeat(MASSES, 3))
    squared_frequencies = np.linalg.eigvalsh(hessian / sqrt_masses / sqrt_masses[:, None])
    return np.sqrt(squared_frequencies[-3:]) * WAVENUMBERS_PER_HARTREE


def main() -> None:
    positions = equilibrium(np.array([[0.0, 0.0, 0.1], [1.6, 0.1, -1.0], [-1.5, 0.0, -1.1]]))
    bend, symmetric, asymmetric = frequencies(positions)
    print(f"bend {bend:.0f}, symmetric stretch {symmetric:.0f}, asymmetric stretch {asymmetric:.0f} 1/cm")


if __name__ == "__main__":
    main()
