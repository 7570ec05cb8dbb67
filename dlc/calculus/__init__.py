"""Functions of functions: derivatives, and batches.

    @dlc.jit
    def step(params, x):
        loss, gradient = dlc.value_and_grad(loss_of)(params, x)
        …

What they give back is a function like any other: it is traced where it is called, into an op whose body is the function, and
the compiler derives from there (`passes/autodiff`, `passes/batching`). Outside of a traced function it is compiled on its
own and run.
"""
