"""Functions of functions: derivatives, and batches.

    @dlc.jit
    def step(params, x):
        loss, gradient = dlc.value_and_grad(loss_of)(params, x)
        …

What they give back is a function like any other: it is traced where it is called, into an op whose body is the function, and
the compiler derives from there (`passes/autodiff`, `passes/batching`). Outside of a traced function it is compiled on its
own and run (`call.py`).

function.py      a function traced into a body; selected.py: of which of its arguments
linear_maps.py   jvp, vjp, linearize
gradients.py     grad, value_and_grad
jacobians.py     jacfwd, jacrev, hessian, hvp
custom.py        rules of a function's own, and what derivatives keep
batching.py      vmap
"""
