"""Running on the CPU.

loader.py    objects to executable memory; relocations.py, entry.py: as each architecture wants it
table.py     the host program as a table of records
sizing.py    what sizes decide in it, as numbers that native code computes; deciding.py: where data decides some
program.py   calls of native code that executes it; context.py: what one works on
native.py    that code, and its threads
"""
