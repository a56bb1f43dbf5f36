"""The server: an HTTP API over model folders, and the explorer page that shows what they do.

- ``registry``: the models, loaded once; ``detectors``: what their detectors look for.
- ``limits``: how much a request may ask for; ``refusals``: what is answered beyond that.
- ``schemas``: questions and answers as types, from which the OpenAPI description is made.
- ``bodies``, ``answers``: bytes in, bytes out.
- ``prediction``, ``explanations``, ``drawing``, ``uploads``: what the endpoints compute.
- ``routes``: the endpoints; ``page_files``: the page's files, held in memory.
- ``front``: what every request passes: key, overload, headers, metrics;
  ``hosts``: which names it answers to.
- ``app``: all of it together; ``server`` and ``workers`` run it, ``connections`` closes those
  that stay silent.

The page itself is in ``page``: plain HTML, CSS and JavaScript modules, nothing from a network.
"""
