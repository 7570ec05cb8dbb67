"""The MLIR dialects of dlc.

`dl/` defines the tensor ops that a model consists of, `host.py` the host program (kernel launches, buffers, control flow) and
`entry.py` the program's entry function. The other modules add ops and attributes that MLIR has and xDSL lacks, the sizes of
buffers inside kernels (`sizes.py`) and source locations in messages (`location_text.py`). `registry.py` loads all of them into
one context.
"""
