"""OpenCL: kernels as C, built by the device's driver; what runs them is `runtime.opencl`.

emit.py, syntax.py        a kernel's loops to OpenCL C
build.py, build_apart.py  text to binaries, in processes of their own, through the cache
"""
