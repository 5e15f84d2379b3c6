"""docs/points.md is what the registry says, and says it of every architecture."""

from __future__ import annotations

import pytest

from beliefspace.core import registry
from beliefspace.core.streams import Stream

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


def test_every_point_of_every_small_instance_is_listed():
    text = points_page.PAGE.read_text(encoding="utf-8")
    for name in filter(points_page._is_built_in, registry.names("models")):
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        for spec in registry.resolve("models", name).tiny():
            network = spec.build(points_page._task(spec), Stream(0, "initial"))
            for point in network.points():
                general = points_page.BLOCK.sub("layers.i.", point.name)
                assert f"| `{point.name}` |" in section or f"| `{general}` |" in section, spec


def test_choices_with_points_of_their_own_have_tables_of_their_own():
    text = points_page.PAGE.read_text(encoding="utf-8")
    assert text.count("| `layers.i.queries_rotary` |") == 1
    for view in ("linear map of the flattened inputs so far", "sum of the embeddings so far"):
        assert view in text


def test_blocks_stand_once_where_all_are_alike_and_one_by_one_where_they_differ():
    alike = [("embed", "x"), ("layers.0.a", "y"), ("layers.1.a", "y"), ("logits", "z")]
    once = [("embed", "x"), ("layers.i.a", "y"), ("logits", "z")]
    assert points_page._once_where_alike(alike) == once
    differing = [("layers.0.a", "y"), ("layers.1.b", "y"), ("layers.2.a", "y")]
    assert points_page._once_where_alike(differing) == differing
    alone = [("layers.0.a", "y")]
    assert points_page._once_where_alike(alone) == alone


def test_a_page_that_differs_is_found_out(monkeypatch, tmp_path, capsys):
    page = tmp_path / "points.md"
    monkeypatch.setattr(points_page, "PAGE", page)
    monkeypatch.setattr(points_page, "ROOT", tmp_path)
    assert points_page.main(["--check"]) == 1
    assert "out of date" in capsys.readouterr().out
    assert points_page.main([]) == 0
    assert points_page.main(["--check"]) == 0
