"""A matplotlib figure as SVG: plain for a file, and with the page's colours to stand inside it.

Both are the same bytes for the same figure: no date, no random identifiers.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from beliefspace.core.errors import missing_extra
from beliefspace.report.figures import THEME, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SVG = "http://www.w3.org/2000/svg"
_LINK = "http://www.w3.org/1999/xlink"
_FAMILY = re.compile(r"'DejaVu Sans'[^;]*")


def standalone(figure: Figure, name: str) -> str:
    """Return a whole SVG file, with text as text and the colours for white paper.

    Args:
        figure: what to draw.
        name: seeds the identifiers inside.
    """
    root = _tidy(figure, name)
    for element in root.iter():
        _restyle(element, "Helvetica, Arial, 'DejaVu Sans', sans-serif", {})
    root.set("xmlns", _SVG)
    root.set("xmlns:xlink", _LINK)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + _written(root)


def inline(figure: Figure, name: str, title: str) -> str:
    """Return an ``svg`` element for a page, whose colours are the page's variables.

    Args:
        figure: what to draw.
        name: comes before the identifiers inside, which must be unique in the page.
        title: what a screen reader says it is.
    """
    root = _tidy(figure, name)
    variables = {colour: f"var(--{variable})" for colour, variable in THEME.items()}
    for element in root.iter():
        _restyle(element, "inherit", variables)
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    root.set("role", "img")
    root.set("aria-label", title)
    for number, element in enumerate(_identified(root)):
        _rename(root, element.attrib["id"], f"{name}-{number}")
    return _written(root)


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
    used = set(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", _written(root)))
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
    return root


def _identified(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [element for element in root.iter() if "id" in element.attrib]


def _rename(root: ElementTree.Element, old: str, new: str) -> None:
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            if key == "id" and value == old:
                element.set(key, new)
            elif value in (f"#{old}", f"url(#{old})"):
                element.set(key, value.replace(old, new))


def _restyle(element: ElementTree.Element, family: str, variables: dict[str, str]) -> None:
    look = element.get("style")
    if look is None:
        return
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
