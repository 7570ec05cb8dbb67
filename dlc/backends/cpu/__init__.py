"""The CPU backend: kernels compiled by LLVM, and the native part of the runtime."""
