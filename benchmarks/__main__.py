"""``python -m benchmarks [PART] ...``: measure what is missing.

Without a name all parts are measured, the short ones first. README.md is written anew at the end,
also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys

from beliefspace.cli.console import duration, note
from beliefspace.core.errors import BeliefspaceError, Interrupted
from benchmarks import accuracy, drawing, efficiency, filtering, layers, render, step_time, tasks

PARTS = {
    "filtering": filtering,
    "drawing": drawing,
    "layers": layers,
    "step_time": step_time,
    "tasks": tasks,
    "efficiency": efficiency,
    "accuracy": accuracy,
}
PEERS = {"step_time": "transformers", "filtering": "hmmlearn", "layers": "mambapy"}


def main(arguments: list[str]) -> int:
    """Measure and render; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "render"], default=[*PARTS, "render"])
    chosen = parser.parse_args(arguments).parts
    wanted = {name: part for name, part in PARTS.items() if name in chosen}
    for part, peer in PEERS.items():
        if part in wanted and importlib.util.find_spec(peer) is None:
            note(f"{part} needs {peer}: python -m pip install -r benchmarks/requirements.txt")
            return 1
    seconds = {name: part.estimate() for name, part in wanted.items()}
    for name, left in seconds.items():
        note(f"{name}: " + (f"about {duration(left)}" if left else "measured already"))
    if len(seconds) > 1:
        note(f"together about {duration(sum(seconds.values()))} on cores that nothing else wants")
    try:
        for part in wanted.values():
            part.measure()
    except (KeyboardInterrupt, Interrupted):
        note("stopped; what was measured is kept, and the same command goes on")
        return Interrupted.exit_status
    except BeliefspaceError as error:
        note(f"error: {error}")
        return error.exit_status
    finally:
        render.write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
