"""The file format of compiled models.

container.py      a header, and sections of bytes; checksum.py: their checksums
variant_table.py  selects a program by conditions on the inputs, for models that run without Python
header/           programs in the header: instructions, sizes, inputs and outputs
description.py    describes a file from its header
"""
