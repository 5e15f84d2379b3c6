"""One HTML file for one run or several: everything is inside it, nothing is loaded.

Panels are plug-ins of the group "panels": functions from a
:class:`~beliefspace.report.context.Context` to a :class:`~beliefspace.report.parts.Section`. One
that fails shows its error in its place. The same runs give the same bytes.
"""

from __future__ import annotations

import base64
import importlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from beliefspace.core import registry
from beliefspace.core.environment import version
from beliefspace.core.errors import InvalidInput, missing_extra
from beliefspace.core.jsonable import to_json
from beliefspace.core.store import Run, write_atomic
from beliefspace.report.context import Context, RunView, read_context
from beliefspace.report.parts import Absent, Cell, Figure, Html, Part, Section, Table
from beliefspace.report.svg import draw
from beliefspace.report.wording import clean, interval, plural, short
from beliefspace.studies.results import MeasureView

MARK = '<meta name="generator" content="beliefspace report">'
"""Stands near the start of every report, so that one is known when it is to be replaced."""

# Other panels come between these and the recipe, by name.
_FIRST = ("ladder", "memory", "published", "entropy-by-position", "learning-curve")
_LAST = ("recipe",)


def write_report(
    run_or_runs: Run | str | Path | Sequence[Run | str | Path], out: str | Path | None = None
) -> Path:
    """Write the page of a run, or of several runs side by side.

    Args:
        run_or_runs: runs or their directories, in any state.
        out: the file to write; by default ``report.html`` in the run, or in the directory that
            holds all the runs.

    Returns:
        Where the page is.

    Raises:
        InvalidInput: no run, the same one twice, no default place for the page, or ``out`` is
            there and not a report.
        CorruptFile: a run's file cannot be read.
        MissingExtra: jinja2 or matplotlib is not installed; nothing is written then.
    """
    require_packages()
    runs = _opened(run_or_runs)
    target = _target(runs, out)
    page = render(read_context(runs))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(target, page)
    return target


def write_figures(
    run_or_runs: Run | str | Path | Sequence[Run | str | Path], folder: str | Path
) -> list[Path]:
    """Write the figures of the page as SVG and PDF files, replacing those of the same names.

    Args:
        run_or_runs: as for :func:`write_report`.
        folder: where to; it is made.

    Returns:
        The files.

    Raises:
        InvalidInput: as :func:`write_report`, and MissingExtra likewise.
    """
    require_packages()
    context = read_context(_opened(run_or_runs))
    sections = [registry.resolve("panels", name)(context) for name in _panel_names()]
    parts = [part for one in sections if isinstance(one, Section) for part in one.parts]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in (part for part in parts if isinstance(part, Figure)):
        pdf = io.BytesIO()
        figure.drawing.savefig(pdf, format="pdf", metadata={"CreationDate": None})
        svg = draw(figure.drawing, figure.name, figure.title).file
        for ending, content in (("svg", svg), ("pdf", pdf.getvalue())):
            written.append(folder / f"{figure.name}.{ending}")
            write_atomic(written[-1], content)
    return written


def require_packages() -> None:
    """Raise unless what makes a page is installed.

    Raises:
        MissingExtra: jinja2 or matplotlib is not; the message says how to install it.
    """
    for package in ("jinja2", "matplotlib"):
        try:
            importlib.import_module(package)
        except ImportError:
            raise missing_extra(package, "report") from None


def render(context: Context) -> str:
    """Return the page of a context as text; see :func:`require_packages`."""
    import jinja2

    here = resources.files("beliefspace.report")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    template = environment.from_string((here / "page.html").read_text(encoding="utf-8"))
    panels = [_panel(name, context) for name in _panel_names()]
    return template.render(
        mark=MARK,
        style=(here / "page.css").read_text(encoding="utf-8"),
        title=_title(context),
        runs=context.runs,
        subtitle=_subtitle(context),
        tiles=_tiles(context),
        panels=[panel for panel in panels if panel.absent is None],
        left_out=[panel for panel in panels if panel.absent is not None],
        data=script_json(_data(context)),
        version=version("beliefspace"),
    )


def script_json(content: object) -> str:
    """Return JSON in which no text can end the script element that it stands in."""
    text = to_json(content)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@dataclass(frozen=True)
class _Rendered:
    """A part, ready for the template."""

    kind: str
    part: Part
    markup: str = ""
    download: str = ""


@dataclass(frozen=True)
class _Panel:
    """A panel's outcome: parts, a reason why it has none, or an error."""

    name: str
    title: str
    parts: list[_Rendered] = field(default_factory=list)
    absent: str | None = None
    error: str | None = None


def _opened(given: Run | str | Path | Sequence[Run | str | Path]) -> list[Run]:
    several = [given] if isinstance(given, Run | str | Path) else list(given)
    if not several:
        raise InvalidInput("a report needs a run; got none")
    runs = [one if isinstance(one, Run) else Run.open(one) for one in several]
    places = [run.path.resolve() for run in runs]
    twice = next((place for place in places if places.count(place) > 1), None)
    if twice is not None:
        raise InvalidInput(f"a report shows each run once; {twice} was given twice")
    return runs


def _target(runs: list[Run], out: str | Path | None) -> Path:
    own = runs[0].path / "report.html"
    if out is None:
        parents = {run.path.resolve().parent for run in runs}
        if len(runs) > 1 and len(parents) > 1:
            raise InvalidInput(
                "the runs are in different directories; give the file to write, "
                'for example out = "report.html"'
            )
        out = own if len(runs) == 1 else runs[0].path.parent / "report.html"
    target = Path(out)
    if target.is_dir():
        raise InvalidInput(f"{target} is a directory; expected a file, {target / 'report.html'}")
    derived = len(runs) == 1 and os.path.realpath(target) == os.path.realpath(own)
    if target.exists() and not derived and not _is_report(target):
        raise InvalidInput(
            f"{target} exists and is not a beliefspace report, so it is not replaced; "
            "choose another name, or remove it first"
        )
    return target


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return MARK.encode() in file.read(2048)


def _panel_names() -> list[str]:
    every = registry.names("panels")
    between = [name for name in every if name not in (*_FIRST, *_LAST)]
    return [name for name in (*_FIRST, *between, *_LAST) if name in every]


def _panel(name: str, context: Context) -> _Panel:
    try:
        section = registry.resolve("panels", name)(context)
        if isinstance(section, Absent):
            return _Panel(name, name, absent=section.reason)
        if not isinstance(section, Section):
            raise TypeError(f"a panel gives a Section or an Absent; got {type(section).__name__}")
        return _Panel(name, section.title, [_rendered(part) for part in section.parts])
    except Exception as error:  # a panel from elsewhere must not take the page with it
        message = " ".join(clean(str(error)).split())
        return _Panel(name, name, error=f"{type(error).__name__}: {message}")


def _rendered(part: Part) -> _Rendered:
    kind = type(part).__name__.lower()
    if isinstance(part, Figure):
        drawn = draw(part.drawing, part.name, part.title)
        return _Rendered(kind, part, drawn.inline, _data_link("image/svg+xml", drawn.file))
    if isinstance(part, Table):
        _check_widths(part)
        return _Rendered(kind, part, download=_data_link("text/csv", part.csv))
    if isinstance(part, Html):
        return _Rendered(kind, part, part.markup)
    return _Rendered(kind, part)


def _check_widths(table: Table) -> None:
    for row in table.rows:
        if len(row.cells) != len(table.columns):
            raise ValueError(
                f"table {table.name!r} has a row of {len(row.cells)} cells for "
                f"{len(table.columns)} columns"
            )


def _data_link(kind: str, content: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content.encode()).decode()}"


def _title(context: Context) -> str:
    models = sorted({run.kind_of("model") or run.name for run in context.runs})
    tasks = sorted({run.kind_of("task") or "" for run in context.runs} - {""})
    what = models[0] if len(context.runs) == 1 else plural(len(context.runs), "run")
    return f"{what} on {', '.join(tasks)}" if tasks else what


def _subtitle(context: Context) -> str:
    tasks = {run.described("task") for run in context.runs}
    models = {run.described("model") for run in context.runs}
    parts = [text.pop() for text in (models, tasks) if len(text) == 1]
    return ", on ".join(part for part in parts if part)


def _tiles(context: Context) -> list[Cell]:
    """Return the numbers at the head of a page about one run: value is the tile's heading."""
    if len(context.runs) > 1 or context.runs[0].score is None:
        return []
    score = context.runs[0].score
    kl, entropy = score.measures["kl_bits"], score.measures["entropy_error_bits"]
    tiles = [
        _tile("KL(Bayes ‖ model)", kl.mean, _bounds(kl)),
        _tile("Worst position, KL", kl.worst, f"at position {kl.worst_position}"),
        _tile("Entropy error", entropy.mean, _bounds(entropy)),
    ]
    worse = [
        (rung["kl_bits"].mean, name)
        for name, rung in score.ladder.items()
        if rung["kl_bits"].mean > kl.mean
    ]
    heading = "Next worse reference, KL"
    if worse:
        tiles.append(_tile(heading, *min(worse)))
    elif score.ladder:
        tiles.append(Cell("none", "every reference is closer", heading))
    return tiles


def _tile(heading: str, bits: float, detail: str) -> Cell:
    return Cell(f"{short(bits)} bits", detail, heading)


def _bounds(one: MeasureView) -> str:
    bounds = interval(one.low, one.high)
    return f"95 % {bounds}" if bounds else ""


def _data(context: Context) -> dict[str, Any]:
    def one(run: RunView) -> dict[str, Any]:
        return {
            "name": run.name,
            "label": run.label,
            "run": run.header,
            "config": run.config_toml,
            "environment": run.environment,
            "metrics": list(run.metrics),
            "result": run.result,
        }

    return {"schema": 1, "runs": [one(run) for run in context.runs]}
