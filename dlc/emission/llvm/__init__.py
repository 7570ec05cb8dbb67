"""Kernels as LLVM IR text: registers are SSA values, loops are basic blocks with phis."""
