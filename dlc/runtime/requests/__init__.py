"""Asynchronous calls: futures, queues of requests, and the executor that runs the requests of all models.

`model.submit` creates a request, which a `RequestQueue` bounds and the `Executor` of the process runs on its threads.
"""
