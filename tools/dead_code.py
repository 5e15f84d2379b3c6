"""List code that nothing uses: vulture's findings, without the declared fields of classes.

The fields of a record (a frozen dataclass, a TypedDict) are read through ``to_dict``, a template or
a table, where no name of theirs appears. A function that nothing calls, not even a test, is dead.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).resolve().parent.parent
DECLARED_FIELD = re.compile(r"\s+\w+\s*:")


def main() -> int:
    """Print each finding; return 1 where there is any."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["vulture"]
    vulture = Vulture(
        ignore_names=options["ignore_names"], ignore_decorators=options["ignore_decorators"]
    )
    vulture.scavenge([str(ROOT / path) for path in options["paths"]])
    found = False
    for item in vulture.get_unused_code(min_confidence=options["min_confidence"]):
        line = Path(item.filename).read_text(encoding="utf-8").splitlines()[item.first_lineno - 1]
        if item.typ == "variable" and DECLARED_FIELD.match(line):
            continue
        print(item.get_report())
        found = True
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
