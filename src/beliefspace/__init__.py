"""Measure whether a system's beliefs are Bayes-exact, show their geometry, and plan with them.

Everything here is imported when it is first used: ``import beliefspace`` is light, and only what
trains or runs networks needs torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beliefspace.core.streams import Stream as Stream
    from beliefspace.core.wrap import wrap as wrap
    from beliefspace.report.page import write_report as write_report
    from beliefspace.studies.comparison import compare as compare
    from beliefspace.windtunnel import models as models
    from beliefspace.windtunnel import tasks as tasks
    from beliefspace.windtunnel.calibration import score as score
    from beliefspace.windtunnel.experiment import run_recipes as run_recipes
    from beliefspace.windtunnel.experiment import train as train
    from beliefspace.windtunnel.recipe import Recipe as Recipe
    from beliefspace.windtunnel.recipe import Schedule as Schedule
    from beliefspace.windtunnel.training import load as load

    __version__: str

_PLACES = {
    "Recipe": "beliefspace.windtunnel.recipe:Recipe",
    "Schedule": "beliefspace.windtunnel.recipe:Schedule",
    "Stream": "beliefspace.core.streams:Stream",
    "compare": "beliefspace.studies.comparison:compare",
    "load": "beliefspace.windtunnel.training:load",
    "models": "beliefspace.windtunnel.models",
    "run_recipes": "beliefspace.windtunnel.experiment:run_recipes",
    "score": "beliefspace.windtunnel.calibration:score",
    "tasks": "beliefspace.windtunnel.tasks",
    "train": "beliefspace.windtunnel.experiment:train",
    "wrap": "beliefspace.core.wrap:wrap",
    "write_report": "beliefspace.report.page:write_report",
}
"""Public name -> its module, or module and name in it."""

_EXTRAS = {"torch": "tunnel", "matplotlib": "plots", "jinja2": "report"}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _PLACES:
        value = _import(_PLACES[name])
    else:
        raise AttributeError(
            f"module 'beliefspace' has no attribute {name!r}; it has {', '.join(_PLACES)}"
        )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, "__version__"})


def _version() -> str:
    from beliefspace.core.environment import version

    return version("beliefspace") or "unknown (run from its sources, not installed)"


def _import(place: str) -> Any:
    module, _, name = place.partition(":")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        from beliefspace.core.errors import missing_extra

        raise missing_extra(error.name, _EXTRAS[error.name]) from error
    return getattr(found, name) if name else found
