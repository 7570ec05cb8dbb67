"""An HTTP server for models: the KServe v2 inference protocol, OpenAI's API for language models, metrics, and hot reload.

`tensors` converts requests and responses, `repository` has the served models, and `application` is the ASGI application.
`completions` has the endpoints of language models; a `text_queue` interleaves their texts. `metrics` counts requests. The
package needs the optional packages starlette and uvicorn.
"""
