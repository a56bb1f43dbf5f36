"""``dcnn serve``: the HTTP API and the explorer page over model folders."""

import logging
import socket
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from dcnn.cli import QUIET
from dcnn.cli import console as cli
from dcnn.data.readers import read_rows
from dcnn.errors import needs_extra
from dcnn.inspection.similar import TextIndex
from dcnn.predictor import Predictor
from dcnn.serve import Limits


@cli.grouped
def serve(
    models: Annotated[list[str], Argument(metavar="MODEL")],
    reading: cli.TextTable,
    host: str = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535)] = 8000,
    workers: Annotated[int, Option(min=1, max=64)] = 1,
    corpus: Path | None = None,
    api_key: Annotated[str, Option(envvar="DCNN_API_KEY", show_default=False)] = "",
    allow_host: Annotated[list[str] | None, Option(metavar="NAME")] = None,
    max_body: cli.Count = Limits.body_bytes,
    max_file: cli.Count = Limits.file_bytes,
    max_rows: cli.Count = Limits.file_rows,
    max_texts: cli.Count = Limits.texts,
    max_length: cli.Count = Limits.characters,
    max_in_flight: cli.Count = Limits.in_flight,
    log_requests: Annotated[bool, Option("--log-requests")] = False,
) -> None:
    """Serve models over HTTP, with a page that shows what the network does with a sentence.

    Models are held in memory, and the page loads nothing from other sites. SIGTERM or Ctrl-C
    finishes the requests in flight. With --corpus the page also shows what activates each feature
    detector.
    """
    with needs_extra("dcnn serve", "serve"):
        import uvicorn  # noqa: F401

        from dcnn.serve.app import make_app
        from dcnn.serve.middleware import LOOPBACK, HostPolicy, Metrics
        from dcnn.serve.models import ServedModel, index_detectors, named_folders
        from dcnn.serve.server import address_of, bind, run_workers, serve

    # Guessed columns are worth a line on the command line, but not for every upload.
    log = logging.getLogger("dcnn")
    logging.getLogger("dcnn.serve").setLevel(log.level or logging.INFO)
    log.setLevel(log.level if log.level in (logging.DEBUG, QUIET) else logging.WARNING)
    limits = Limits(
        max_body, max_file, max_rows, max_texts, characters=max_length, in_flight=max_in_flight
    )

    def load(name: str, folder: Path) -> ServedModel:
        predictor = Predictor.load(folder)
        model = ServedModel(name, predictor, index=TextIndex.load(folder, predictor.artifact))
        if corpus is None or not model.info()["explainable"]:
            return model
        columns = reading()
        texts = (row.text for row in read_rows(corpus, columns, labels=False))
        console = cli.make_console(stderr=True)
        console.print(f"{name}: ranking its feature detectors over {corpus}")
        with cli.count_progress(console, "{count} texts") as report:
            index = index_detectors(model.predictor, texts, report)
        return replace(model, detectors=index)

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

    app = make_app(served, limits, metrics, api_key, log_requests, hosts)

    def work(number: int, listener: socket.socket, *supervised: Any) -> None:
        metrics.worker = number
        metrics.reset_in_flight()
        serve(app, listener, *supervised)

    if workers == 1:
        work(0, sockets[0])
    else:
        run_workers(work, sockets)
