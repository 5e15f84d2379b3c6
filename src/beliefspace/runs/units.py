"""A unit of work: a function found by name, what it is given, and where its result goes.

The function must be safe to call again: it skips what is finished and goes on with what is half
done. So any engine can run a unit, lose it and run it again.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import load_file

Report = Callable[[Mapping[str, Any]], None]
Work = Callable[[Mapping[str, Any], Path, Report], None]


@dataclass(frozen=True)
class Unit:
    """One piece of work.

    Attributes:
        name: what it is called in progress and errors; unique among units that run together.
        function: "package.module:function", called with the config, the directory and a reporter.
        config: plain values, as a TOML file could hold them.
        out: the directory that the function makes or goes on with.
        needs: what registers the names in the config and is not built in: modules, ``.py`` files,
            or "__main__" for the script that is being run.
    """

    name: str
    function: str
    config: Mapping[str, Any]
    out: Path
    needs: tuple[str, ...] = ()

    def work(self) -> Work:
        """Import what the unit needs, and then its function.

        Raises:
            InvalidInput: if there is no such function, or a need cannot be imported.
        """
        for need in self.needs:
            if need.endswith(".py"):
                load_file(need)
            elif need != "__main__":
                importlib.import_module(need)
        module, _, name = self.function.partition(":")
        try:
            found: Work = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise InvalidInput(f"no function {self.function!r}: {error}") from None
        return found
