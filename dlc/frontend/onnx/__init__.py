"""The ONNX importer: convert a model file into a `dl` module and a weight store.

Suggested reading order: `graph.py` (parsing and validation), `large_tensors.py` (large tensors outside protobuf), `tensors.py`
(tensors as arrays), `importer.py` (graph inputs and outputs), `conversion.py` (node by node), `definitions.py` (how an operator
is converted), `functions.py` (functions and function bodies), `values.py` (strings, sequences, maps and optionals; tensors are
in `../emitter.py`), `diagnostics.py` (unsupported features), `input_dependencies.py` (the graph inputs that a value depends
on), `program_arguments.py` and `graph_outputs.py` (arguments and results of the program), `node.py` and `registry.py` (the API
for converters), then the operator families in `operators/`.
"""

from dlc.frontend.onnx.importer import ImportedModel, TensorInfo, check_model, import_model

__all__ = ["ImportedModel", "TensorInfo", "check_model", "import_model"]
