"""What there is, and what each is: every setting, and an example whose numbers are right."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from beliefspace.cli.catalog import list_names
from beliefspace.cli.docstrings import body, fields_documented, summary
from beliefspace.cli.main import main
from beliefspace.core import registry
from beliefspace.windtunnel.models import Transformer
from beliefspace.windtunnel.optimizers import Muon
from beliefspace.windtunnel.recipe import Recipe
from beliefspace.windtunnel.tasks import Bijection


def described(capsys, name):
    assert main(["describe", name, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_list_holds_every_registered_name(capsys):
    assert main(["list", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    found = {(entry["group"], entry["name"]) for entry in entries}
    assert found >= {(group, name) for group in registry.GROUPS for name in registry.names(group)}
    assert all(entry["summary"] for entry in entries)


def test_one_group_as_text(capsys):
    assert main(["list", "optimizers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split(maxsplit=2) == ["group", "name", "what it is"]
    assert {line.split()[1] for line in lines if line.startswith("optimizers")} == {"adamw", "muon"}


def test_a_group_without_members(capsys, monkeypatch):
    monkeypatch.setattr(registry, "names", lambda _group: [])
    assert list_names(["planners"]).parts == ("nothing is registered there",)


@pytest.mark.parametrize(
    ("name", "cls"),
    [("bijection", Bijection), ("models/transformer", Transformer), ("muon", Muon)],
)
def test_every_setting_is_described(capsys, name, cls):
    data = described(capsys, name)
    assert [one["name"] for one in data["fields"]] == [one.name for one in dataclasses.fields(cls)]
    assert all(one["meaning"] for one in data["fields"])
    assert data["summary"] in " ".join(data["text"].split())
    assert cls.__module__ in data["source"]


def test_types_and_defaults(capsys):
    fields = {one["name"]: one for one in described(capsys, "bijection")["fields"]}
    assert (fields["pairs"]["type"], fields["pairs"]["default"]) == ("int | none", "none")
    assert (fields["format"]["type"], fields["format"]["default"]) == ("B | A", "B")


def test_facts_of_a_task(capsys):
    task = described(capsys, "bijection")["task"]
    assert task["hypotheses"] == f"{math.log2(math.factorial(20)):.4g} bits"
    assert task["inputs"] == "[n, 39] token ids 0 to 39"
    assert task["outcomes"] == "20: tokens 20 to 39"


def test_the_example_of_a_task_is_right(capsys):
    """Format B, 4 values, distinct keys: 4, 3, 2, then 1 values are left."""
    example = described(capsys, "bijection")["example"]
    scored = [row for row in example["rows"] if row["drawn"]]
    bits = [float(row["bits"]) for row in scored]
    assert bits == pytest.approx([2, math.log2(3), 1, 0], abs=5e-3)
    seen = [row["input"] for row in example["rows"]]
    for count, row in enumerate(scored[:4]):
        possible = {pair.split(":")[0] for pair in row["Bayes"].split(", ")}
        assert possible == set("4567") - set(seen[1 : 2 * count : 2])
        assert row["drawn"] in possible


def test_text_fits(capsys):
    assert main(["describe", "transformer"]) == 0
    *lines, source = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert source.startswith("source: ")


def test_a_panel_is_a_function_with_arguments(capsys):
    assert main(["describe", "panels/ladder"]) == 0
    assert "(context: " in capsys.readouterr().out


def test_docstrings_are_taken_apart():
    class Thing:
        """Do a thing,
        in two lines.

        More about it.

        Args:
            one: the first,
                in two lines.
            two: the second: with a colon.

        Raises:
            three: is no field.
        """

    assert summary(Thing) == "Do a thing, in two lines."
    assert body(Thing) == "Do a thing,\nin two lines.\n\nMore about it."
    assert fields_documented(Thing) == {
        "one": "the first, in two lines.",
        "two": "the second: with a colon.",
    }


def test_every_part_of_a_recipe_is_documented_for_the_help():
    assert set(fields_documented(Recipe)) == {one.name for one in dataclasses.fields(Recipe)}
