"""Neural network functions: layers, normalization, attention, recurrent cells and losses.

    def init(key):
        first, second = dlc.random.split(key)
        return {"w": nn.init.he(first, (784, 512)), "b": np.zeros(512, np.float32), "out": nn.init.lecun(second, (512, 10))}

    def apply(params, x):
        return nn.dense(nn.relu(nn.dense(x, params["w"], params["b"])), params["out"])

A model is two plain functions: `init` creates parameters, a pytree of arrays, and `apply` computes with them. Images are
channels-last, [N, H, W, C], and weights have inputs before outputs, [*K, I, O]. Like those of `dlc.numpy`, the functions append
to a trace or compute immediately. `dlc.nn.init` has the initializers of parameters.
"""

from dlc.argument_validation.validate import validate_arguments
from dlc.nn import activations, dot_product_attention, init, layers, losses, normalization, pooling, recurrent_cells
from dlc.nn.activations import *  # noqa: F403
from dlc.nn.dot_product_attention import *  # noqa: F403
from dlc.nn.layers import *  # noqa: F403
from dlc.nn.losses import *  # noqa: F403
from dlc.nn.normalization import *  # noqa: F403
from dlc.nn.pooling import *  # noqa: F403
from dlc.nn.recurrent_cells import *  # noqa: F403

# The modules that define the public functions, in documentation order.
FAMILIES = (layers, pooling, activations, normalization, dot_product_attention, recurrent_cells, losses)

__all__ = ["init"]
__all__ += activations.__all__
__all__ += dot_product_attention.__all__
__all__ += layers.__all__
__all__ += losses.__all__
__all__ += normalization.__all__
__all__ += recurrent_cells.__all__
__all__ += pooling.__all__

validate_arguments(globals())
