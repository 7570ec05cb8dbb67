"""The file format of compiled models.

container.py      a header, and sections of bytes; checksum.py: their checksums
variant_table.py  which program serves which calls, for running models without Python
header/           programs in the header: instructions, sizes, inputs and outputs
"""
