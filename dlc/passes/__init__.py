"""Compiler passes between a frontend and code generation: one folder per stage, in the order of `pipelines.py`.

`transformations/` replaces derivatives (`autodiff/`) and vmapped ops (`batching/`) by plain ops. `dl/` rewrites the
computation, `fusion/` forms kernels. Each kernel is lowered by `linalg/`, `tiling/` and `loops/`; kernels with
hand-written loops come from `library_kernels/`. The host program is lowered by `host/`. `base.py` defines passes
and stages, `structured.py` builds the IR of the later stages, `types.py` makes their types, `views.py` finds host
values that alias others.
"""
