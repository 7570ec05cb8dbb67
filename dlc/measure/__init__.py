"""How fast models and kernels run, beside other runtimes and beside what the machine can do."""
