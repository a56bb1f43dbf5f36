"""What the server counts, for Prometheus.

All workers count into one piece of shared memory, a row each, so that whichever of them is asked
tells of all. Every series is known from the start: routes, statuses and models are fixed. The
format of the answer is a few lines of text, and a library's own way to join several processes is
files on a disk.
"""

import mmap
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from dcnn.serve.registry import ServedModel

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ROUTES = (
    *("/v1/predict", "/v1/predict-file", "/v1/explain", "/v1/compare", "/v1/detectors"),
    *("/v1/models", "/healthz", "/metrics", "/openapi.json", "page", "other"),
)
STATUSES = (200, 304, 400, 401, 403, 404, 405, 408, 413, 421, 422, 499, 500, 503, "other")
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)  # seconds


class Metrics:
    """Counters of all workers.

    Args:
        models: the models that are served.
        workers: how many processes count.
    """

    def __init__(self, models: Sequence[ServedModel], workers: int = 1) -> None:
        self.worker = 0  # set in every process to its own row
        self._models = tuple(models)
        self._routes = {route: number for number, route in enumerate(ROUTES)}
        self._statuses: dict[object, int] = {
            status: number for number, status in enumerate(STATUSES)
        }
        self._texts_of = {model.name: number for number, model in enumerate(models)}
        self._answers = _shared(workers, len(ROUTES), len(STATUSES))
        self._times = _shared(workers, len(ROUTES), len(BOUNDS) + 1)
        self._seconds = _shared(workers, len(ROUTES))
        self._texts = _shared(workers, len(models))
        self._in_flight = _shared(workers)
        self._started = time.time()

    def begin(self) -> None:
        """A request has come."""
        self._in_flight[self.worker] += 1

    def end(self, route: str, status: int, seconds: float) -> None:
        """A request has been answered."""
        number, worker = self._routes[route], self.worker
        self._in_flight[worker] -= 1
        self._answers[worker, number, self._statuses.get(status, len(STATUSES) - 1)] += 1
        self._times[worker, number, _bucket(seconds)] += 1
        self._seconds[worker, number] += seconds

    def count_texts(self, model: str, texts: int) -> None:
        """Texts were classified."""
        self._texts[self.worker, self._texts_of[model]] += texts

    def in_flight(self) -> int:
        """Requests that this worker holds."""
        return int(self._in_flight[self.worker])

    def forget_in_flight(self) -> None:
        """Those of a worker that died before this one took its place."""
        self._in_flight[self.worker] = 0

    def text(self) -> str:
        """All of it in the text format of Prometheus."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _head("dcnn_requests_total", "counter", "Requests, by route and status.")
        answers = self._answers.sum(axis=0)
        for number, route in enumerate(ROUTES):
            for status, count in zip(STATUSES, answers[number].tolist(), strict=True):
                if count:
                    labels = _labels(route=route, status=status)
                    yield f"dcnn_requests_total{labels} {count:.0f}"
        yield from _head("dcnn_request_seconds", "histogram", "Time to an answer, by route.")
        times, seconds = self._times.sum(axis=0), self._seconds.sum(axis=0)
        for number, route in enumerate(ROUTES):
            below = list(accumulate(times[number].tolist()))
            if not below[-1]:
                continue
            for bound, count in zip((*BOUNDS, "+Inf"), below, strict=True):
                yield f"dcnn_request_seconds_bucket{_labels(route=route, le=bound)} {count:.0f}"
            yield f"dcnn_request_seconds_sum{_labels(route=route)} {seconds[number]:.6f}"
            yield f"dcnn_request_seconds_count{_labels(route=route)} {below[-1]:.0f}"
        yield from _head("dcnn_texts_total", "counter", "Texts classified, by model.")
        for model, count in zip(self._models, self._texts.sum(axis=0).tolist(), strict=True):
            yield f"dcnn_texts_total{_labels(model=model.name)} {count:.0f}"
        yield from _head("dcnn_in_flight", "gauge", "Requests that are being answered.")
        yield f"dcnn_in_flight {self._in_flight.sum():.0f}"
        yield from _head("dcnn_workers", "gauge", "Processes that answer.")
        yield f"dcnn_workers {len(self._in_flight)}"
        yield from _head("dcnn_start_time_seconds", "gauge", "When the server was started.")
        yield f"dcnn_start_time_seconds {self._started:.3f}"
        yield from _head("dcnn_model_info", "gauge", "The models that are served.")
        for model in self._models:
            labels = _labels(model=model.name, kind=model.kind, backend=model.predictor.backend)
            yield f"dcnn_model_info{labels} 1"


def _shared(*shape: int) -> NDArray[np.float64]:
    """Zeros that a process and its children see alike."""
    size = int(np.prod(shape)) * 8
    return np.frombuffer(mmap.mmap(-1, size), np.float64).reshape(shape)


def _bucket(seconds: float) -> int:
    for number, bound in enumerate(BOUNDS):
        if seconds <= bound:
            return number
    return len(BOUNDS)


def _head(name: str, kind: str, about: str) -> tuple[str, str]:
    return f"# HELP {name} {about}", f"# TYPE {name} {kind}"


def _labels(**labels: object) -> str:
    pairs = (f'{name}="{_escaped(str(value))}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
