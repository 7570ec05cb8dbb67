"""Code generation: kernels at the end of the `loops` stage become source text, each in one traversal.

common/  the base emitter of every language: vector registers, linear index expressions, memref addresses, tile accesses,
         and loops of one iteration, which become straight-line code
llvm/    LLVM IR for CPUs
c/       dialects of C; each dialect is data (c/syntax.py)

A language is a class that derives from `common.emitter.KernelEmitter`. It is composed of mixins, one per file: types and
definitions (core.py), memory, vectors and control flow; a table of functions emits the arithmetic ops. kernel.py combines
them and emits one function per grid.
"""
