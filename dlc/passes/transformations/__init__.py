"""Functions of functions, `dl.jvp`, `dl.vjp` and `dl.vmap`, made into the ops that compute them."""
