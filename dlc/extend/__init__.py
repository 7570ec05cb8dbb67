"""The API of plug-ins: what packages outside of dlc may import to extend it (docs/plugins.md).

    from dlc import extend

    plugin = extend.Plugin(name="acme", ops=[SoftClipOp], partials={SoftClipOp: (lambda r, x: …,)})

ops.py        op classes: interfaces, type inference, scalar code, builders
rules.py      derivative rules and batching rules
passes.py     passes and rewriting
onnx.py, tflite.py, stablehlo.py, pytorch.py    converters of a frontend
quantization.py    methods that choose the range of an activation
language_models.py    block formats of weights
targets.py    backends

Names that are not in `__all__` of these modules are internal and change without notice.
"""

from __future__ import annotations

from dlc.plugins.plugin import PassPlacement, Plugin
from dlc.plugins.registry import register, unregister

__all__ = ["PassPlacement", "Plugin", "register", "unregister"]
