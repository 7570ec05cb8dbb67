"""An HTTP server for models: the KServe v2 inference protocol, OpenAI's API for language models, metrics, and hot reload.

It needs the optional packages starlette and uvicorn.

application.py     the ASGI application: routes, authorization and limits
http_requests.py   bodies, disconnected clients, and errors with a status code
tensors.py         requests and responses of the KServe protocol
repository.py      the served models
completions.py     the endpoints of language models
text_queue.py      decodes the texts of a language model together
embeddings.py      the endpoint of encoders
metrics.py         counters for Prometheus
"""
