"""OpenCL: kernels as C, built by the device's driver; what runs them is `runtime.opencl`.

backend.py              what a device is to the compiler
emit.py                 a kernel's loops to OpenCL C
syntax.py, functions.py the language as a dialect of C, and what it lacks
limits.py               what a device can do at most
"""
