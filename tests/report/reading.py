"""A page as a browser would take it apart: elements, text, and what it would fetch."""

from __future__ import annotations

import json
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr", "path", "use", "rect"}


class Page(HTMLParser):
    """Elements of a page with their attributes, and the text of each by its place."""

    def __init__(self, text):
        super().__init__()
        self.source = text
        self.elements = []
        self.texts = []
        self.data = ""
        self._open = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append((tag, dict(attrs)))

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if self._open and self._open[-1][0] == "script":
            self.data += data
        elif data.strip() and not (self._open and self._open[-1][0] == "style"):
            panel = next((a["id"] for t, a in self._open if t == "section" and "id" in a), "")
            self.texts.append((panel, self._open[-1][0] if self._open else "", data.strip()))

    def find(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, panel=None, tag=None):
        return " ".join(
            text
            for where, inside, text in self.texts
            if panel in (None, where) and tag in (None, inside)
        )

    @property
    def panels(self):
        return [a["id"] for a in self.find("section") if a["id"].startswith("panel-")]

    @property
    def json(self):
        return json.loads(self.data)


def rows(page_text, panel, table=0):
    """Return the rows of a panel's table as lists of cell texts, details after a slash."""
    section = page_text.split(f'<section id="panel-{panel}">')[1].split("</section>")[0]
    body = section.split("<tbody>")[1 + table].split("</tbody>")[0]
    found = []
    for row in body.split("<tr")[1:]:
        cells = []
        for cell in row.replace("<th", "<td").split("<td")[1:]:
            content = cell.partition(">")[2].replace("<small>", " / ")
            cells.append(content.partition("</t")[0].replace("</small>", ""))
        found.append(cells)
    return found
