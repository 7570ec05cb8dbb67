"""OpenCL: kernels as C, built by the device's driver; what runs them is `runtime.opencl`.

emit.py, syntax.py  a kernel's loops to OpenCL C
limits.py           what a device can do at most
"""
