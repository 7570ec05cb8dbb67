"""The CPU as a target: its kernels' code by LLVM, and what of the run-time is code."""
