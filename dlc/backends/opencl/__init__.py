"""OpenCL: kernels as OpenCL C, compiled by the device's driver; `runtime.opencl` runs them."""
