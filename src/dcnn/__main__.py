"""``python -m dcnn`` is ``dcnn``."""

from dcnn.cli import main

if __name__ == "__main__":
    main()
