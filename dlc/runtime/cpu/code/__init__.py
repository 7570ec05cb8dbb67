"""Machine code in memory.

loader.py        load ELF objects into executable memory
relocations.py   apply the relocations of each architecture; entry_stub.py: the first instructions of a program image
native.py        the native runtime: the bytecode interpreter, thread pools, checksums
"""
