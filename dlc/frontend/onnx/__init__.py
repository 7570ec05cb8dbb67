"""The ONNX importer: a model file becomes a `dl` module and a weights store.

Read in this order: `graph.py` (the file and its rules), `large_tensors.py` (what of it protobuf is spared), `tensors.py` (its
arrays), `importer.py` (inputs and outputs), `converting.py` (node by node), `definitions.py` (what an operator means),
`functions.py` (nodes that stand for other nodes), `values.py` (those that are no tensors; of tensors, `../emit.py`),
`findings.py` (what is not supported), `origins.py` (the inputs that a value hangs on), `arguments.py` (what the model is called
with), `borders.py` (text, and what is no tensor, at the model's borders), `node.py` and `registry.py` (what converters are
written with), then the op families, which `operators/` holds and lists.
"""

from dlc.frontend.onnx.importer import ImportedModel, TensorInfo, check_model, import_model

__all__ = ["ImportedModel", "TensorInfo", "check_model", "import_model"]
