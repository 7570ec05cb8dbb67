"""The file of a model.

container.py   a header, and sections of bytes; checksum.py: of each section
parts.py       which of its programs is for which call, for who runs them without Python
header/        what the header says of a program: instructions, sizes, inputs and outputs
"""
