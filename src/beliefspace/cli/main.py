"""The entry of the command line: Ctrl-C is answered while the rest is still being imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the program's name; None takes those of this process.

    Returns:
        The exit status.
    """
    if sys.stderr is None:
        _open_standard_error()
    try:
        from beliefspace.cli.commands import run

        return run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        print("beliefspace: interrupted", file=sys.stderr)
        return 130


def _open_standard_error() -> None:
    """Send to nowhere what would otherwise be printed among the answers, or into a run's file."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, 2)
    if descriptor != 2:
        os.close(descriptor)
    sys.stderr = os.fdopen(2, "w", closefd=False)


if __name__ == "__main__":
    sys.exit(main())
