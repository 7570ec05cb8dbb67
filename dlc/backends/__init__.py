"""What programs run on: NumPy (`reference/`), the CPU (`cpu/`), devices (`opencl/`); `base.py` is what a target is."""
