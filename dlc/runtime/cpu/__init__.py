"""Running on the CPU.

loader.py    objects to executable memory; relocations.py, entry.py: as each architecture wants it
table.py     the host program as a table of records
program.py   calls of native code that executes it
native.py    that code, and its threads
"""
