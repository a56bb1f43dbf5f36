"""How much one request may ask for, and how many may ask at once."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a request may have at most; beyond, it is refused with a sentence.

    Attributes:
        body: bytes of a JSON body.
        file: bytes of an uploaded file.
        rows: texts of an uploaded file.
        texts: texts of one request.
        explained: texts of one request that are explained; each takes many milliseconds.
        explained_words: words of one request that is explained or compared, all texts together.
        characters: of one text.
        in_flight: requests that a worker holds at once, those that wait for it included.
        waiting: explanations and large batches that may wait for a thread of a worker.
        threads: threads of a worker for these; single texts are answered without any.
        uploads: files that a worker holds at once, from their first byte to the last prediction;
            they have one thread.
        body_seconds: for a body to arrive.
        stream_seconds: for a file's predictions to be read by the one who asked for them.
    """

    body: int = 2**20
    file: int = 16 * 2**20
    rows: int = 50_000
    texts: int = 1000
    explained: int = 16
    explained_words: int = 1000
    characters: int = 20_000
    in_flight: int = 256
    waiting: int = 16
    threads: int = 1
    uploads: int = 4
    body_seconds: float = 10.0
    stream_seconds: float = 120.0
