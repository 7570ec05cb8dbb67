"""Expansion of the function transformations `dl.jvp`, `dl.vjp` and `dl.vmap` into plain ops."""
