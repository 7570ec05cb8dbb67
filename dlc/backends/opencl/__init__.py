"""OpenCL: kernels as C, built by the device's driver; the same host program as on the CPU as a list of commands.

emit.py, syntax.py   a kernel's loops to OpenCL C
devices.py           what there is, what it is compiled for, which one a target's name means
parts.py, build.py   text to binaries, in processes of their own, through the cache
program.py           the host program as commands in a device's queue
array.py             arrays that stay on a device until somebody looks
driver.py            PyOpenCL
"""
