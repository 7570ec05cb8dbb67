"""LLVM IR text: registers are values in single assignment, loops are blocks and phis."""
