"""The TFLite importer.

Suggested reading order: `flatbuffer.py` (tables of a FlatBuffer), `schema.py` (the contents of a file), `node.py` (the API
for converters), `reader.py` (operator by operator), then the operator families.
"""

from dlc.frontend.tflite.reader import read_model
from dlc.frontend.tflite.schema import is_tflite, operator_lines

__all__ = ["is_tflite", "operator_lines", "read_model"]
