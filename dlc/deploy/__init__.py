"""Compiled models where there is no Python.

dlc.h        opens a compiled model's file, and runs it: C, or whatever calls C
library.py   a model as a library or an object: its programs (runtime/cpu/image.py), what picks one, and weights
headers.py   the header beside it
elf.py       shared libraries and relocatable objects, written without a linker
archive.py   objects in an archive
"""

from pathlib import Path

from dlc.deploy.library import SUFFIXES, runs_without_python, write_library

__all__ = ["HEADER", "SUFFIXES", "runs_without_python", "write_library"]

HEADER = Path(__file__).with_name("dlc.h")
