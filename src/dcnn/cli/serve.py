"""``dcnn serve``: the HTTP API and the explorer page over model folders."""

import logging
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from dcnn.cli import console as cli
from dcnn.data.readers import TableOptions, read_rows
from dcnn.errors import needs_extra
from dcnn.predictor import Predictor
from dcnn.serve import Limits

_API_KEY = "Require this key; the variable keeps it out of the process list."


def serve(
    models: Annotated[
        list[str], Argument(metavar="MODEL", help="Model folders; NAME=FOLDER names one.")
    ],
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, Option(min=0, max=65535, help="Port to listen on; 0 is any free one.")
    ] = 8000,
    workers: Annotated[int, Option(min=1, max=64, help="Number of processes.")] = 1,
    corpus: Annotated[
        Path | None, Option(help="Texts that show what the feature detectors react to.")
    ] = None,
    text_column: cli.TextColumn = None,
    encoding: cli.Encoding = "utf-8",
    no_header: cli.NoHeader = False,
    api_key: Annotated[str, Option(envvar="DCNN_API_KEY", show_default=False, help=_API_KEY)] = "",
    allow_host: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="A host name of the server behind a proxy; repeatable."),
    ] = None,
    max_body: Annotated[int, Option(min=1, help="Bytes per request.")] = Limits.body_bytes,
    max_file: Annotated[int, Option(min=1, help="Bytes per uploaded file.")] = Limits.file_bytes,
    max_rows: Annotated[int, Option(min=1, help="Texts per uploaded file.")] = Limits.file_rows,
    max_texts: Annotated[int, Option(min=1, help="Texts per request.")] = Limits.texts,
    max_length: Annotated[int, Option(min=1, help="Characters per text.")] = Limits.characters,
    max_in_flight: Annotated[
        int, Option(min=1, help="Requests per worker at once; then 503.")
    ] = Limits.in_flight,
    log_requests: Annotated[
        bool, Option("--log-requests", help="Log a line per request, without its texts.")
    ] = False,
) -> None:
    """Serve models over HTTP, with a page that shows what the network does with a sentence.

    Models are held in memory, and the page loads nothing from other sites. SIGTERM or Ctrl-C
    finishes the requests in flight. With --corpus the page also shows what each feature detector
    reacts to.
    """
    with needs_extra("dcnn serve", "serve"):
        import uvicorn  # noqa: F401

        from dcnn.serve.app import make_app
        from dcnn.serve.middleware import LOOPBACK, HostPolicy, Metrics
        from dcnn.serve.models import ServedModel, index_detectors, named_folders
        from dcnn.serve.server import address_of, bind, run_workers, serve

    # Guessed columns are worth a line on the command line, but not for every upload.
    logging.getLogger("dcnn").setLevel(logging.WARNING)
    logging.getLogger("dcnn.serve").setLevel(logging.INFO)
    limits = Limits(
        max_body, max_file, max_rows, max_texts, characters=max_length, in_flight=max_in_flight
    )

    def load(name: str, folder: Path) -> ServedModel:
        model = ServedModel(name, Predictor.load(folder))
        if corpus is None or not model.info()["explainable"]:
            return model
        columns = TableOptions(text_column, encoding=encoding, header=not no_header)
        texts = (row.text for row in read_rows(corpus, columns, labels=False))
        console = cli.make_console(stderr=True)
        console.print(f"{name}: ranking its feature detectors over {corpus}")
        with cli.count_progress(console, "{count} texts") as report:
            index = index_detectors(model.predictor, texts, report)
        return ServedModel(name, model.predictor, index)

    folders = named_folders(models)
    sockets = bind(host, port, workers)
    served = [load(name, folder) for name, folder in folders.items()]
    metrics = Metrics(served, workers)
    address = address_of(sockets[0])
    is_local = ip_address(sockets[0].getsockname()[0]).is_loopback
    # Only this machine can ask, so a request for any other host name is DNS rebinding by a page.
    names = (*LOOPBACK, host) if is_local and not api_key else None
    hosts = HostPolicy(allow_host or (), names)
    if not is_local and not api_key:
        print("Anyone who reaches this machine can ask: --api-key or DCNN_API_KEY requires a key.")
    print(
        f"Serving {', '.join(folders)} on {address} (docs: {address}docs); Ctrl-C ends.", flush=True
    )

    def work(number: int, listener: socket.socket, alive: int | None = None) -> None:
        metrics.worker = number
        metrics.reset_in_flight()
        app = make_app(served, limits, metrics, api_key, log_requests, hosts)
        serve(app, listener, alive)

    if workers == 1:
        work(0, sockets[0])
    else:
        run_workers(work, sockets)
