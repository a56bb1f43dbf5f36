"""The process: ``dcnn``, or ``python -m dcnn``.

Exit codes: 0 done; 1 the work failed; 2 the user's input is wrong, and one sentence says what,
where and how to fix it; 130 stopped by the user.

``dcnn predict MODEL TEXT ...`` has a fast path that imports only what it needs, without the
command-line parser.
"""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from dcnn.errors import DcnnError


def main() -> NoReturn:
    """Run a command, and end with its exit code."""
    try:
        _run_to_exit_code()
    except SystemExit as ended:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            # Threads of gloo remain, and abort every third process of torchrun while it shuts
            # down, with all its work done.
            _end_at_once(ended.code)
        raise


def _end_at_once(code: str | int | None) -> NoReturn:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _run_to_exit_code() -> NoReturn:
    """Run a command, and turn an error into one sentence and an exit code."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("dcnn").setLevel(logging.INFO)  # of libraries, warnings only
    # A terminated command cleans up after itself, as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        _run(sys.argv[1:])
    except DcnnError as error:
        print(f"dcnn: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # nobody reads our output any more, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (OSError, MemoryError) as error:  # a name too long, a full disk, no memory
        where = getattr(error, "filename", None)
        what = getattr(error, "strerror", None) or "there is not enough memory"
        print(f"dcnn: {where}: {what}" if where else f"dcnn: {what}", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)


def _run(arguments: Sequence[str]) -> None:
    if arguments[:1] in (["predict"], ["serve"]):
        # Prediction uses one thread, and numpy's BLAS starts one per core when it is loaded: on two
        # cores that takes half as long again as the rest of numpy. The workers of a server are
        # forked, which a process with threads should not be.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if _is_plain_prediction(arguments):
        _predict(Path(arguments[1]), arguments[2:])
    else:
        from dcnn.cli import app

        app()


def _predict(model: Path, texts: Sequence[str]) -> None:
    """``dcnn predict MODEL TEXT ...``, without the command-line parser."""
    from dcnn.batch_predict.lines import OutputFormat
    from dcnn.files import standard_output
    from dcnn.predictor import Predictor

    form, predictor = OutputFormat(), Predictor.load(model)
    form.check(predictor)
    stdout = standard_output("name a file with --output")
    form.write(stdout, predictor, texts)
    stdout.flush()


def _is_plain_prediction(arguments: Sequence[str]) -> bool:
    """Whether it is ``predict MODEL TEXT ...`` without any option."""
    return (
        len(arguments) > 2
        and arguments[0] == "predict"
        and not any(argument.startswith("-") for argument in arguments)
    )


if __name__ == "__main__":
    main()
