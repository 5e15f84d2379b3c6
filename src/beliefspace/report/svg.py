"""A matplotlib figure as SVG: plain for a file, and with the page's colours to stand inside it.

Both are the same bytes for the same figure: no date, no random identifiers.
"""

from __future__ import annotations

import copy
import io
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from beliefspace.core.errors import missing_extra
from beliefspace.report.figures import THEME, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SVG = "http://www.w3.org/2000/svg"
_LINK = "http://www.w3.org/1999/xlink"
_FAMILY = re.compile(r"'DejaVu Sans'[^;]*")


@dataclass(frozen=True)
class Drawn:
    """One drawing, twice.

    Attributes:
        inline: an ``svg`` element for a page, whose colours are the page's variables.
        file: a whole SVG file, with text as text and the colours for white paper.
    """

    inline: str
    file: str


def draw(figure: Figure, name: str, title: str) -> Drawn:
    """Return a figure as SVG.

    Args:
        figure: what to draw.
        name: comes before the identifiers inside, which must be unique in the page.
        title: what a screen reader says it is.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    root = _tidy(figure, name)
    page = copy.deepcopy(root)
    variables = {colour: f"var(--{variable})" for colour, variable in THEME.items()}
    _restyle(page, "inherit", variables)
    for size in ("width", "height"):
        page.attrib.pop(size, None)
    page.set("role", "img")
    page.set("aria-label", title)
    _restyle(root, "Helvetica, Arial, 'DejaVu Sans', sans-serif", {})
    root.set("xmlns", _SVG)
    root.set("xmlns:xlink", _LINK)
    return Drawn(_written(page), '<?xml version="1.0" encoding="UTF-8"?>\n' + _written(root))


def _tidy(figure: Figure, name: str) -> ElementTree.Element:
    """Draw, and keep what shows: no metadata, no sheet of styles, no identifier without a use."""
    try:
        import matplotlib
    except ImportError:
        raise missing_extra("matplotlib", "plots") from None
    text = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    drawn: Any = {"svg.fonttype": "none", "svg.hashsalt": name}
    with style(), matplotlib.rc_context(drawn), warnings.catch_warnings():
        # The reader's font shows letters that the one used for measuring lacks.
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing from font", category=UserWarning
        )
        figure.savefig(text, format="svg", metadata=nothing, transparent=True)
    root = ElementTree.fromstring(text.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")
    for element in root.iter():
        element.tag = _local(element.tag)
        for key in list(element.attrib):
            if key.startswith("{"):
                element.set(f"xlink:{_local(key)}", element.attrib.pop(key))
    _rename(root, name)
    return root


def _rename(root: ElementTree.Element, name: str) -> None:
    """Give every identifier that is used a name that starts with the drawing's; drop the others."""
    used = dict.fromkeys(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", _written(root)))
    new = {old: f"{name}-{number}" for number, old in enumerate(used)}
    references = {f"#{old}": f"#{short}" for old, short in new.items()}
    references |= {f"url(#{old})": f"url(#{short})" for old, short in new.items()}
    for element in root.iter():
        old = element.attrib.pop("id", None)
        for key, value in element.attrib.items():
            element.set(key, references.get(value, value))
        if old in new:
            element.set("id", new[old])


def _restyle(root: ElementTree.Element, family: str, variables: Mapping[str, str]) -> None:
    for element in root.iter():
        look = element.get("style")
        if look is None:
            continue
        look = _FAMILY.sub(family, look)
        for colour, variable in variables.items():
            look = look.replace(colour, variable)
        element.set("style", look)


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _written(root: ElementTree.Element) -> str:
    text = ElementTree.tostring(root, encoding="unicode")
    return "\n".join(_lines(text))


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.strip():
            yield line.strip()
