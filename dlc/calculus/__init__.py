"""Function transformations: derivatives and vectorization.

    @dlc.jit
    def step(params, x):
        loss, gradient = dlc.value_and_grad(loss_of)(params, x)
        …

A transformation returns a function like any other. When it is called during tracing, it is traced into an op whose body is the
function, and the compiler differentiates or batches the body (`passes/autodiff`, `passes/batching`). Outside of a traced
function it is compiled on its own and run (`transformed_calls.py`).

differentiated_arguments.py   select the arguments to differentiate with respect to
linear_maps.py                jvp, vjp, linearize
gradients.py                  grad, value_and_grad
jacobians.py                  jacfwd, jacrev, hessian, hvp
custom_rules.py               custom_jvp, custom_vjp, checkpoint, stop_gradient
batching.py                   vmap
shard_maps.py                 shard_map
"""
