"""Deployment of compiled models without Python.

dlc.h        opens and runs the file of a compiled model, from C or any language that can call C
library.py   a model as a library or an object: its programs (runtime/cpu/program_image.py), program selection, and weights
headers.py   the header of such a library
elf.py       writes shared libraries and relocatable objects without a linker
archive.py   writes static archives
"""

from pathlib import Path

from dlc.deploy.library import SUFFIXES, runs_without_python, save_model, write_library

__all__ = ["HEADER", "SUFFIXES", "runs_without_python", "save_model", "write_library"]

HEADER = Path(__file__).with_name("dlc.h")
