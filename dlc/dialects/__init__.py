"""The ops of programs.

`dl/` says what is computed, `host.py` what runs when, `entry.py` where it starts. The others are what MLIR has and
xDSL lacks, the sizes of buffers (`sizes.py`) and where ops come from (`places.py`); `registry.py` has all of them in one
context.
"""
