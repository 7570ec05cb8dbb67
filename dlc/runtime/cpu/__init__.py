"""Running on the CPU.

loader.py    objects to executable memory
program.py   the host program as a table that native code executes
native.py    that code, and its threads
"""
