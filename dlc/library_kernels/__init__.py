"""Library kernels: the loops of ops whose iterations depend on earlier ones, in the language of `dlc.kernels`.

`trace_body.py` traces them into functions on buffers, and `registry.py` lists them by op. Indices that cannot be proved to be
in bounds are assumed to be (`k.assume_index`); the evaluator checks them.
"""
