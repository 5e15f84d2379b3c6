"""docs/points.md is what the registry says, and says it of every architecture."""

from __future__ import annotations

import pytest

from beliefspace.core import registry

pytest.importorskip("torch")

from tools import points_page


def test_the_page_is_up_to_date():
    assert points_page.PAGE.read_text(encoding="utf-8") == points_page.page(), "run: make docs"


def test_every_architecture_has_its_points():
    text = points_page.PAGE.read_text(encoding="utf-8")
    for name in registry.names("models"):
        if points_page._is_built_in(name):
            section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
            assert "| `embed` |" in section
            assert "| `logits` |" in section


def test_a_page_that_differs_is_found_out(monkeypatch, tmp_path, capsys):
    page = tmp_path / "points.md"
    monkeypatch.setattr(points_page, "PAGE", page)
    monkeypatch.setattr(points_page, "ROOT", tmp_path)
    assert points_page.main(["--check"]) == 1
    assert "out of date" in capsys.readouterr().out
    assert points_page.main([]) == 0
    assert points_page.main(["--check"]) == 0
