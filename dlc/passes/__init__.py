"""What happens to a program between a frontend and text: a folder for each stage, in the order of `pipelines.py`.

`transformations/` puts plain ops in the place of derivatives (`autodiff/`) and batches (`batching/`). `dl/` rewrites what is
computed, `fusion/` makes kernels of it. Each kernel goes on through `linalg/`, `tiling/` and `loops/`; one that is loops from
the start is written by `procedures/`. The host program goes through `host/`. `base.py` is what a pass is, `structured.py` how
ops of the later stages are written, `types.py` their types, `views.py` which values are parts of others.
"""
