"""The ONNX importer: a model file becomes a `dl` module and a weights store.

Read in this order: `graph.py` (the file and its rules), `tensors.py` (its arrays), `importer.py` (node by node),
`functions.py` (nodes that stand for other nodes), `emit.py` (values, known and not; `values.py`: those that are no tensors),
`origins.py` (the inputs that they hang on), `borders.py` (text, and what is no tensor, at the model's borders), `node.py` and
`registry.py` (what converters are written with), then the op families, which `operators.py` lists.
"""

from dlc.frontend.onnx.importer import ImportedModel, TensorInfo, check_model, import_model
from dlc.frontend.onnx.problems import OpenInputsError, Problem

__all__ = ["ImportedModel", "OpenInputsError", "Problem", "TensorInfo", "check_model", "import_model"]
