"""The server: an HTTP API over model folders, and a web page that explores what they do.

- ``registry``: the loaded models by name.
- ``schemas``: types of requests and responses; the OpenAPI document is generated from them.
- ``protocol``: limits, errors, and JSON bodies as bytes.
- ``prediction``, ``explanations``: what the endpoints compute.
- ``app``: the endpoints; ``middleware``: overload, host, key, headers and metrics of every request.
- ``server``: uvicorn, connection limits, worker processes.

The page itself is in ``page``: plain HTML, CSS and JavaScript modules without external resources.
"""
