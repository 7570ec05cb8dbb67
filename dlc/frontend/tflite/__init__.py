"""TFLite files into `dl`: `flatbuffer.py` (tables of a buffer), `schema.py` (what is in a file), `node.py` (what a converter
sees of an operator), `reader.py` (operator by operator), then the families of operators.
"""

from dlc.frontend.tflite.reader import read_model
from dlc.frontend.tflite.schema import is_tflite, operator_lines

__all__ = ["is_tflite", "operator_lines", "read_model"]
