"""Backends: NumPy (`reference/`), the CPU (`cpu/`) and OpenCL devices (`opencl/`); `base.py` defines the interface."""
