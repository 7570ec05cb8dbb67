"""Neural networks as plain functions: layers, normalisation, attention, steps of recurrent ones, losses.

    def init(key):
        first, second = dlc.random.split(key)
        return {"w": nn.init.he(first, (784, 512)), "b": np.zeros(512, np.float32), "out": nn.init.lecun(second, (512, 10))}

    def apply(params, x):
        return nn.dense(nn.relu(nn.dense(x, params["w"], params["b"])), params["out"])

A model is two functions: `init` makes parameters, in dicts, tuples and dataclasses as one likes, and `apply` computes with
them. Images are channels-last, [N, H, W, C], and weights have inputs before outputs, [*K, I, O]. As those of `dlc.numpy`
the functions append to a trace or compute at once. `dlc.nn.init` has what parameters begin with.
"""

from dlc.misuse import explain_misuse
from dlc.nn import activations, attending, init, layers, losses, normalization, recurrence, windows
from dlc.nn.activations import *  # noqa: F403
from dlc.nn.attending import *  # noqa: F403
from dlc.nn.layers import *  # noqa: F403
from dlc.nn.losses import *  # noqa: F403
from dlc.nn.normalization import *  # noqa: F403
from dlc.nn.recurrence import *  # noqa: F403
from dlc.nn.windows import *  # noqa: F403

# Where the public functions are defined, in the order of the documentation.
FAMILIES = (layers, windows, activations, normalization, attending, recurrence, losses)

__all__ = ["init"]
__all__ += activations.__all__
__all__ += attending.__all__
__all__ += layers.__all__
__all__ += losses.__all__
__all__ += normalization.__all__
__all__ += recurrence.__all__
__all__ += windows.__all__

explain_misuse(globals())
