"""The language-independent emitter that LLVM IR and C share."""
