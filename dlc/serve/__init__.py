"""An HTTP server for models: the KServe v2 inference protocol, health, metrics, and hot reload of a folder of models.

`tensors` converts requests and responses, `repository` has the served models, `metrics` counts, `application` is the ASGI
application. The package needs the optional packages starlette and uvicorn.
"""
