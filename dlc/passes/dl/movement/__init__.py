"""Data movement: moves transposes and reshapes out of computations, and checks indices."""
