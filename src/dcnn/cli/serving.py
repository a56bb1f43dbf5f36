"""``dcnn serve``: the API and the explorer page."""

from pathlib import Path
from typing import Annotated

import typer

from dcnn.cli.options import Encoding, NoHeader, TextColumn


def serve(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="Model folders; NAME=FOLDER gives one a name."),
    ],
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0: any free one.")
    ] = 8000,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=64, help="Processes that answer.")
    ] = 1,
    corpus: Annotated[
        Path | None,
        typer.Option("--corpus", help="Texts that show what the network's detectors look for."),
    ] = None,
    text_column: TextColumn = None,
    encoding: Encoding = "utf-8",
    no_header: NoHeader = False,
    api_key: Annotated[
        str,
        typer.Option(
            "--api-key",
            envvar="DCNN_API_KEY",
            show_default=False,
            help="Ask every request for it; a process list shows it, the variable does not.",
        ),
    ] = "",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", metavar="NAME", help="A name of the server behind a proxy; repeatable."
        ),
    ] = None,
    max_body: Annotated[
        int, typer.Option("--max-body", min=1, help="Bytes of a request.")
    ] = 1_048_576,
    max_file: Annotated[
        int, typer.Option("--max-file", min=1, help="Bytes of an uploaded file.")
    ] = 16_777_216,
    max_rows: Annotated[
        int, typer.Option("--max-rows", min=1, help="Texts of an uploaded file.")
    ] = 50_000,
    max_texts: Annotated[
        int, typer.Option("--max-texts", min=1, help="Texts of a request.")
    ] = 1000,
    max_length: Annotated[
        int, typer.Option("--max-length", min=1, help="Characters of a text.")
    ] = 20_000,
    max_in_flight: Annotated[
        int, typer.Option("--max-in-flight", min=1, help="Requests a worker holds; then 503.")
    ] = 256,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="A line for each request, without its texts.")
    ] = False,
) -> None:
    """Serve models: an HTTP API, and a page that shows what the network does with a sentence.

    Everything is in memory, and the page loads nothing from a network. SIGTERM or Ctrl-C finishes
    what is in flight. With --corpus the page also tells what each detector of the network looks
    for.

    \b
    Examples:
      dcnn serve my-model
      dcnn serve my-model --corpus reviews.csv
      dcnn serve sst2=models/7 trec=models/9 --host 0.0.0.0 --port 80 --workers 2
    """
    from dcnn.commands.serve import ServeOptions, run_serve
    from dcnn.data.readers import TableOptions
    from dcnn.serve.protocol import Limits

    run_serve(
        ServeOptions(
            models=models,
            host=host,
            port=port,
            workers=workers,
            corpus=corpus,
            columns=TableOptions(text_column, encoding=encoding, header=not no_header),
            key=api_key,
            limits=Limits(
                body_bytes=max_body,
                file_bytes=max_file,
                file_rows=max_rows,
                texts=max_texts,
                characters=max_length,
                in_flight=max_in_flight,
            ),
            log_requests=log_requests,
            allowed_hosts=allow_host or (),
        )
    )
