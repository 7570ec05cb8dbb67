"""Data movement: ops that copy elements to other positions, static or data-dependent."""
