"""Count in two processes, a third unit and one that only waits beside them; see ``work.count``.

Run as a program: ``counting.py DIRECTORY``. Prints "ready" when all that run are waiting, and exits
as the command line would.
"""

from __future__ import annotations

import sys
from pathlib import Path

from beliefspace.core.errors import BeliefspaceError
from beliefspace.runs.engines import Local
from beliefspace.runs.units import Unit


def main() -> int:
    directory = Path(sys.argv[1])
    waiting = set()

    def observe(name, report):
        if report.get("ready"):
            waiting.add(name)
        if waiting == {"one", "two", "idle"}:
            print("ready", flush=True)

    kinds = {"one": "count", "two": "count", "idle": "wait", "late": "count"}
    if (directory / "one").exists():
        del kinds["idle"]
    units = [
        Unit(name, f"tests.runs.work:{kind}", {}, directory / name) for name, kind in kinds.items()
    ]
    try:
        Local(workers=3).run(units, observe)
    except BeliefspaceError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
