"""The server: an HTTP API over model folders, and a web page that explores what they do.

- ``models``: the loaded models, and what they answer.
- ``schemas``: types of requests and responses; the OpenAPI document is generated from them.
- ``app``: the endpoints; ``middleware``: overload, host, key, headers and metrics of every request.
- ``server``: uvicorn, connection limits, worker processes.

The page itself is in ``page``: plain HTML, CSS and JavaScript modules without external resources.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a request may contain, and how many a worker process handles at once.

    Attributes:
        body_bytes: size of a JSON body.
        file_bytes: size of an uploaded file.
        file_rows: texts in an uploaded file.
        texts: texts in a request.
        explain_texts: texts in a request to explain; each takes many milliseconds.
        explain_words: words in a request to explain or compare, all texts together.
        characters: length of a text.
        in_flight: requests that a worker has accepted and not answered.
        queue: explanations and large batches that wait for a thread of a worker.
        threads: threads of a worker for these; single texts are predicted on the event loop.
        uploads: files that a worker holds, from their first byte to the last prediction.
        body_seconds: time for a body to arrive.
        stream_seconds: time for a client to read the predictions of a file.
    """

    body_bytes: int = 2**20
    file_bytes: int = 16 * 2**20
    file_rows: int = 50_000
    texts: int = 1000
    explain_texts: int = 16
    explain_words: int = 1000
    characters: int = 20_000
    in_flight: int = 256
    queue: int = 16
    threads: int = 1
    uploads: int = 4
    body_seconds: float = 10.0
    stream_seconds: float = 120.0
