"""Compiler passes between a frontend and code generation: one folder per stage, in the order of `pipelines.py`.

`transformations/` replaces derivatives (`autodiff/`) and vmapped ops (`batching/`) by plain ops. `dl/` rewrites the
computation, `fusion/` forms kernels. Each kernel is lowered by `linalg/`, `tiling/` and `loops/`. The host program is lowered
by `host/`. `base.py` defines passes and stages, `structured.py` builds ops of standard dialects, `kernel_builder.py` and
`kernel_values.py` loops and arithmetic, `types.py` types and attributes, and `views.py` finds views in the host program.
`placement.py` inserts passes into a pipeline, and `elementwise_costs.py` estimates elementwise ops.
"""
