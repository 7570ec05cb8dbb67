"""OpenCL devices."""
