"""The largest memory of a command, as its own small process sees it.

    python -m dcnn.bench.peak_memory COMMAND ...

A process inherits the peak of the one that starts it until it runs a program of its own: asked by a
benchmark that holds torch, every child would seem as large. Nothing is imported here that is large.
"""

import resource
import subprocess
import sys

# The system counts in kilobytes, on macOS in bytes.
UNIT = 1 if sys.platform == "darwin" else 1024


def main() -> None:
    """Run the command and print the bytes of its peak."""
    subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)  # noqa: S603
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * UNIT)


if __name__ == "__main__":
    main()
