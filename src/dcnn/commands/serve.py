"""``dcnn serve``: the HTTP API and the explorer page over model folders."""

import logging
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from dcnn.data.readers import TableOptions
from dcnn.errors import MissingExtraError
from dcnn.predictor import Predictor

try:
    import fastapi  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError:
    raise MissingExtraError("dcnn serve", "serve") from None

from dcnn.serve.app import make_app
from dcnn.serve.explanations import corpus_texts, index_detectors
from dcnn.serve.middleware import LOOPBACK, HostPolicy, Metrics
from dcnn.serve.protocol import Limits
from dcnn.serve.registry import Registry, ServedModel, named_folders
from dcnn.serve.server import address_of, bind, run_workers, serve


@dataclass(frozen=True)
class ServeOptions:
    """What the command line asks for.

    Attributes:
        models: folders, or ``NAME=FOLDER``.
        host: address to listen on.
        port: port to listen on; 0 is any that is free.
        workers: processes.
        corpus: texts whose n-grams show what the detectors look for.
        columns: how to read the corpus.
        key: what requests must carry; none if empty.
        limits: what a request may ask for.
        log_requests: whether a line is logged for each.
        allowed_hosts: names that the server has besides its address.
    """

    models: Sequence[str]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    corpus: Path | None = None
    columns: TableOptions = field(default_factory=TableOptions)
    key: str = ""
    limits: Limits = field(default_factory=Limits)
    log_requests: bool = False
    allowed_hosts: Sequence[str] = ()


def run_serve(options: ServeOptions) -> None:
    """Load the models and answer until told to stop."""
    # How columns are guessed is of use on a command line; here it would be a line an upload.
    logging.getLogger("dcnn").setLevel(logging.WARNING)
    logging.getLogger("dcnn.serve").setLevel(logging.INFO)
    folders = named_folders(options.models)
    sockets = bind(options.host, options.port, options.workers)
    registry = Registry([_load(name, folder, options) for name, folder in folders.items()])
    metrics = Metrics(registry.models, options.workers)
    address = address_of(sockets[0])
    # Nobody but this machine can ask, so any other name was made to point here by a page.
    private = _is_loopback(sockets[0]) and not options.key
    hosts = HostPolicy(options.allowed_hosts, (*LOOPBACK, options.host) if private else None)
    if not _is_loopback(sockets[0]) and not options.key:
        print("Anyone who reaches this machine can ask: --api-key or DCNN_API_KEY asks for a key.")
    print(
        f"Serving {', '.join(folders)} on {address} (docs: {address}docs); Ctrl-C ends.", flush=True
    )

    def work(number: int, callback: socket.socket, alive: int | None = None) -> None:
        metrics.worker = number
        metrics.reset_in_flight()
        app = make_app(registry, options.limits, metrics, options.key, options.log_requests, hosts)
        serve(app, callback, alive)

    if options.workers == 1:
        work(0, sockets[0])
    else:
        run_workers(work, sockets)


def _load(name: str, folder: Path, options: ServeOptions) -> ServedModel:
    model = ServedModel(name, Predictor.load(folder))
    if options.corpus is None or not model.explainable:
        return model
    texts = corpus_texts(options.corpus, options.columns)
    print(f"{name}: looking what its detectors answer to in {options.corpus}", file=sys.stderr)
    return ServedModel(name, model.predictor, index_detectors(model.predictor, texts, _tell))


def _tell(texts: int) -> None:
    """How far it is, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r{texts:,} texts", end="\r", file=sys.stderr, flush=True)


def _is_loopback(callback: socket.socket) -> bool:
    return ip_address(callback.getsockname()[0]).is_loopback
