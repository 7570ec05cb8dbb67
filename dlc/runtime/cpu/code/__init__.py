"""Machine code in memory.

loader.py        objects to executable memory
relocations.py   distances in code, as each architecture writes them; entry.py: the first instructions of a block
native.py        the run-time's code: what executes tables, its threads, checksums
"""
