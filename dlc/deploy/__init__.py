"""Compiled models where there is no Python.

dlc.h        opens a compiled model's file, and runs it: C, or whatever calls C
library.py   a model as a library or an object: the program (runtime/image.py), its weights, and a header
elf.py       shared libraries and relocatable objects, written without a linker
archive.py   objects in an archive
"""

from pathlib import Path

from dlc.deploy.library import SUFFIXES, write_library

__all__ = ["HEADER", "SUFFIXES", "write_library"]

HEADER = Path(__file__).with_name("dlc.h")
