"""The process: ``dcnn``, or ``python -m dcnn``.

Exit codes: 0 done; 1 the work failed; 2 the user's input is wrong, and one sentence says what,
where and how to fix it; 130 stopped by the user.

``dcnn predict MODEL TEXT ...`` has a fast path that imports only what it needs, without the
command-line parser.
"""

import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from dcnn.errors import DcnnError

INTERRUPTED = 130


def main() -> NoReturn:
    """Run a command, and end with its exit code."""
    arguments = sys.argv[1:]
    if _has_fast_path(arguments):
        # The process ends in a moment: searching it for garbage and freeing all of its objects
        # would take as long as a third of numpy's import. Everything is written by now.
        gc.disable()
        os._exit(run(arguments))
    code = run(arguments)
    # Taking torch apart takes a third of a second. Under torchrun threads of gloo remain, and abort
    # every third process while it shuts down, with all its work done. After Ctrl-C,
    # one of sixty shutdowns was seen to end by the signal instead of with the exit code.
    is_worker = "TORCHELASTIC_RUN_ID" in os.environ
    if is_worker or "torch" in sys.modules or code == INTERRUPTED:
        import atexit
        import logging
        import threading

        if not is_worker:
            for thread in threading.enumerate():  # as Python itself does
                if thread is not threading.current_thread() and not thread.daemon:
                    thread.join()
            atexit._run_exitfuncs()
        logging.shutdown()
        lost = _flushed()
        os._exit(code or lost)
    sys.exit(code)


def _flushed() -> int:
    """Flush standard output and standard error; returns 1 if output is lost, else 0."""
    try:
        if sys.stdout is not None:  # as it is where the shell closed it
            sys.stdout.flush()
        if sys.stderr is not None:
            sys.stderr.flush()
    except BrokenPipeError:
        return 1
    except OSError as error:
        _report(f"standard output: {error.strerror}")
        return 1
    return 0


def run(arguments: Sequence[str]) -> int:
    """Run a command, and turn an error into one sentence and an exit code."""
    if arguments[:1] in (["predict"], ["serve"]):
        # Prediction uses one thread, and numpy's BLAS starts one per core when it is loaded: on two
        # cores that takes half as long again as the rest of numpy. The workers of a server are
        # forked, which a process with threads should not be.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        if _has_fast_path(arguments):
            _predict(arguments[1], arguments[2:])
        else:
            _run_parsed()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except DcnnError as error:
        import logging  # not needed to predict

        logging.getLogger("dcnn").debug("the error in full:", exc_info=True)
        _report(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # nobody reads our output any more, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, MemoryError) as error:  # a name too long, a full disk, no memory
        where = getattr(error, "filename", None)
        what = getattr(error, "strerror", None) or "there is not enough memory"
        if where is None and isinstance(error, OSError):  # files are named where they are written
            where = "standard output"
        _report(f"{where}: {what}" if where else what)
        return 1
    return 0


def _report(error: str) -> None:
    """Print an error without control characters: file names in it may come from anyone."""
    shown = "".join("\ufffd" if c < " " != c != "\n" or "\x7f" <= c < "\xa0" else c for c in error)
    print(f"dcnn: {shown}", file=sys.stderr)


def _has_fast_path(arguments: Sequence[str]) -> bool:
    """Whether this is ``predict MODEL TEXT ...`` without an option."""
    command, *rest = arguments or [""]
    return command == "predict" and len(rest) > 1 and not any(one[:1] == "-" for one in rest)


def _predict(model: str, texts: Sequence[str]) -> None:
    """``dcnn predict MODEL TEXT ...``, without the command-line parser."""
    from dcnn.batch_predict.lines import OutputFormat
    from dcnn.files import standard_output
    from dcnn.predictor import Predictor

    form, predictor = OutputFormat(), Predictor.load(model)
    form.check(predictor)
    stdout = standard_output("name a file with --output")
    form.write(stdout, predictor, texts)
    stdout.flush()


def _run_parsed() -> None:
    import logging
    import signal
    import time

    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    log = logging.getLogger("dcnn")
    log.setLevel(logging.INFO)  # of libraries, warnings only
    # Importing torch makes a million objects that stay: with Python's own thresholds the collector
    # goes through them again and again.
    gc.set_threshold(100_000, 20, 20)
    # A terminated command cleans up after itself, as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    started = time.monotonic()
    try:
        from dcnn.cli import run

        sys.exit(run())
    finally:
        log.debug("the command took %.2f s", time.monotonic() - started)


if __name__ == "__main__":
    main()
