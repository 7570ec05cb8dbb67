"""Kernels at the end of the loops stage as text, each in one visit.

visit/   what a visit is in every language: registers, linear indices, views, accesses, loops that turn out straight
llvm/    LLVM IR for processors
c/       dialects of C, which are data (c/syntax.py)

A language is a class that derives from `visit.visit.Visit`, made in parts: words and definitions (core.py), memory, vectors,
control; and a table of functions that write arithmetic. kernel.py puts them together, one function for each grid.
"""
