"""Configurations come back exactly, and what does not fit says where and what would."""

from __future__ import annotations

import math
import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beliefspace.core import registry
from beliefspace.core.config import (
    content_hash,
    from_dict,
    from_toml,
    merge,
    read_toml,
    to_dict,
    to_toml,
)
from beliefspace.core.errors import InvalidInput, UnknownName
from beliefspace.core.registry import register


class Shape(ABC):
    """A registered base, as Task and ModelSpec are."""

    group: ClassVar[str] = "environments"

    @abstractmethod
    def area(self) -> float:
        """Return the area."""


@dataclass(frozen=True)
class Disc(Shape):
    radius: float = 1.0

    def area(self) -> float:
        return math.pi * self.radius**2


@dataclass(frozen=True)
class Frame(Shape):
    inner: Disc
    outer: Shape

    def area(self) -> float:
        return self.outer.area() - self.inner.area()


@dataclass(frozen=True)
class Elsewhere:
    radius: float = 1.0


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    """Register the classes for this module's tests only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_entries", dict(registry._entries))
        patch.setattr(registry, "_by_value", dict(registry._by_value))
        patch.setattr(registry, "_scanned", set(registry.GROUPS))
        register("environments", "test-disc")(Disc)
        register("environments", "test-frame")(Frame)
        register("planners", "test-elsewhere")(Elsewhere)
        yield


@dataclass(frozen=True)
class Part:
    name: str
    size: int = 2

    def __post_init__(self) -> None:
        if self.size < 0:
            raise InvalidInput(f"size {self.size}: expected at least 0")


@dataclass(frozen=True)
class Sample:
    count: int
    rate: float
    quick: bool
    label: str
    part: Part
    shape: Shape
    limit: int | None
    spare: Part | None = None
    sizes: tuple[int, ...] = ()
    pair: tuple[float, str] = (0.0, "")
    nested: tuple[tuple[int, ...], ...] = ()
    parts: tuple[Part, ...] = ()
    shapes: tuple[Shape, ...] = ()
    header: Literal["rows", "none", 3] = "rows"
    budget: int | float | Literal["auto"] | tuple[int, ...] | None = None
    noted: Annotated[int, "a note"] = 0
    derived: int = field(default=0, init=False)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
integers = st.integers() | st.integers(-3, 3)
floats = st.floats()
parts = st.builds(Part, name=texts, size=st.integers(min_value=0))
discs = st.builds(Disc, radius=floats)
shapes = st.recursive(discs, lambda inner: st.builds(Frame, inner=discs, outer=inner), max_leaves=3)
many = {"max_size": 3}
samples = st.builds(
    Sample,
    count=integers,
    rate=floats,
    quick=st.booleans(),
    label=texts,
    part=parts,
    shape=shapes,
    limit=st.none() | integers,
    spare=st.none() | parts,
    sizes=st.lists(integers, **many).map(tuple),
    pair=st.tuples(floats, texts),
    nested=st.lists(st.lists(integers, **many).map(tuple), **many).map(tuple),
    parts=st.lists(parts, **many).map(tuple),
    shapes=st.lists(shapes, **many).map(tuple),
    header=st.sampled_from(["rows", "none", 3]),
    budget=st.none() | integers | floats | st.just("auto") | st.just((1, 2)),
    noted=integers,
)
PLAIN = Sample(1, 0.5, True, "a", Part("p"), Disc(2.0), None)


@settings(deadline=None)
@given(samples)
def test_every_config_comes_back_exactly(config: Sample) -> None:
    # repr tells 1 from 1.0, 0.0 from -0.0 and shows a NaN, which == does not.
    assert repr(from_toml(Sample, to_toml(config))) == repr(config)
    assert repr(from_dict(Sample, to_dict(config))) == repr(config)


@settings(deadline=None)
@given(samples)
def test_the_hash_is_of_the_content_alone(config: Sample) -> None:
    table = tomllib.loads(to_toml(config))
    shuffled = from_dict(Sample, dict(reversed(table.items())))
    assert content_hash(shuffled) == content_hash(config)
    assert content_hash(replace(config, count=config.count + 1)) != content_hash(config)
    assert re.fullmatch("[0-9a-f]{64}", content_hash(config))


def test_the_hash_is_pinned() -> None:
    # sha256 of {"kind":"test-disc","radius":1.0}, computed with coreutils.
    expected = "6a4c6322eafd19c21929b0d191ab4c6922b0a42364487031c6885b1d43fe533b"
    assert content_hash(Disc(1.0)) == expected


def test_the_hash_tells_classes_apart_and_takes_an_integer_for_a_number() -> None:
    assert content_hash(Disc(1)) == content_hash(Disc(1.0))
    assert content_hash(Disc(1.0)) != content_hash(Elsewhere(1.0))


def test_what_is_written_is_readable_toml_with_every_field() -> None:
    table = tomllib.loads(to_toml(PLAIN))
    assert table["shape"] == {"kind": "test-disc", "radius": 2.0}
    assert table["part"] == {"name": "p", "size": 2}
    assert "limit" not in table
    assert "spare" not in table
    assert "derived" not in table
    assert table["header"] == "rows"


def test_numpy_scalars_are_written_as_plain_ones() -> None:
    config = replace(PLAIN, count=np.int64(3), rate=np.float64(0.25), quick=np.bool_(False))
    back = from_toml(Sample, to_toml(config))
    assert (type(back.count), type(back.rate), type(back.quick)) == (int, float, bool)
    assert (back.count, back.rate, back.quick) == (3, 0.25, False)


def test_a_registered_base_reads_any_of_its_kinds_and_a_class_only_itself() -> None:
    assert from_toml(Shape, 'kind = "test-disc"\nradius = 3.0') == Disc(3.0)
    assert from_toml(Disc, "radius = 3.0") == Disc(3.0)
    assert from_toml(Disc, 'kind = "test-disc"') == Disc()
    with pytest.raises(InvalidInput, match="kind = 'test-frame', which is not a Disc"):
        from_toml(Disc, 'kind = "test-frame"')


def changed(**changes: object) -> dict[str, Any]:
    """Return a good table with some entries changed."""
    return to_dict(PLAIN) | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": "5"}, "c.toml: count = '5' (str): expected an integer"),
        ({"count": True}, "c.toml: count = True (bool): expected an integer"),
        ({"count": 5.0}, "c.toml: count = 5.0 (float): expected an integer"),
        ({"rate": "1.0"}, "c.toml: rate = '1.0' (str): expected a number"),
        ({"rate": False}, "c.toml: rate = False (bool): expected a number"),
        ({"quick": 1}, "c.toml: quick = 1 (int): expected true or false"),
        ({"label": 1}, "c.toml: label = 1 (int): expected text"),
        ({"limit": None}, "c.toml: limit = None (NoneType): expected an integer"),
        ({"sizes": [1, "2"]}, "c.toml: sizes[1] = '2' (str): expected an integer"),
        ({"sizes": "12"}, "c.toml: sizes = '12' (str): expected a list, each an integer"),
        ({"nested": [[], [1.5]]}, "c.toml: nested[1][0] = 1.5 (float): expected an integer"),
        ({"pair": [1.0]}, "c.toml: pair = [1.0] (list): expected a list of 2: a number, text"),
        ({"part": 3}, "c.toml: part = 3 (int): expected a table (Part)"),
        ({"part": {"name": 3}}, "c.toml: part.name = 3 (int): expected text"),
        ({"spare": {"name": 3}}, "c.toml: spare.name = 3 (int): expected text"),
        (
            {"parts": [{"name": "a"}, {"name": "b", "size": "c"}]},
            "c.toml: parts[1].size = 'c' (str): expected an integer",
        ),
        (
            {"header": "row"},
            "c.toml: header = 'row' (str): expected one of 'rows', 'none', 3; nearest: 'rows'",
        ),
        ({"header": 3.0}, "c.toml: header = 3.0 (float): expected one of 'rows', 'none', 3"),
        (
            {"budget": "full"},
            "c.toml: budget = 'full' (str): expected an integer or 'auto' or a list, "
            "each an integer or a number",
        ),
        ({"noted": "x"}, "c.toml: noted = 'x' (str): expected an integer"),
        (
            {"part": {"name": "p", "sise": 1}},
            "c.toml: table [part] has the unknown key 'sise'; nearest: size; known: name, size",
        ),
        ({"part": {"size": 1}}, "c.toml: table [part] lacks name (text)"),
        (
            {"part": {"name": "p", "size": -1}},
            "c.toml: table [part]: size -1: expected at least 0",
        ),
        (
            {"shape": {"kind": "test-disc", "radios": 1.0}},
            "c.toml: table [shape] has the unknown key 'radios'; nearest: radius; known: radius",
        ),
        (
            {"shape": {"kind": "test-frame", "inner": {}, "outer": {"kind": 3}}},
            "c.toml: table [shape.outer] has kind = 3: expected text, "
            "the name of one of the environments",
        ),
        ({"derived": 1}, "c.toml: the top level has the unknown key 'derived'"),
    ],
)
def test_a_value_that_does_not_fit_is_one_exact_line(changes: dict, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        from_dict(Sample, changed(**changes), where="c.toml")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_an_integer_is_a_number() -> None:
    rate = from_dict(Sample, changed(rate=2)).rate
    assert type(rate) is float
    assert rate == 2.0


def test_every_missing_key_is_named() -> None:
    with pytest.raises(InvalidInput) as caught:
        from_toml(Sample, "count = 1\nquick = true", where="c.toml")
    assert str(caught.value) == (
        "c.toml: the top level lacks rate (a number), label (text), part (a table (Part)), "
        "shape (a table (Shape))"
    )


def test_an_unknown_kind_gives_the_nearest_and_a_missing_one_gives_all() -> None:
    with pytest.raises(UnknownName, match=r"table \[shape\]: .*'test-disk'; nearest: test-disc"):
        from_dict(Sample, changed(shape={"kind": "test-disk"}))
    with pytest.raises(InvalidInput, match=r"table \[shape\] lacks kind .*test-disc.*test-frame"):
        from_dict(Sample, changed(shape={"radius": 1.0}))
    with pytest.raises(UnknownName, match="test-elsewhere"):
        from_dict(Sample, changed(shape={"kind": "test-elsewhere"}))


def test_a_toml_error_says_where() -> None:
    with pytest.raises(InvalidInput, match=r"c\.toml is not valid TOML: .*line 2, column 8"):
        from_toml(Sample, "count = 1\nrate = \n", where="c.toml")


@pytest.mark.parametrize("value", [100_000 * "[", 5000 * "1"])
def test_toml_that_python_does_not_read_is_said_to_be_none(value: str) -> None:
    with pytest.raises(InvalidInput, match=r"^mine\.toml is not valid TOML: "):
        read_toml(f"value = {value}", "mine.toml")


def test_what_would_not_come_back_is_not_written() -> None:
    @dataclass(frozen=True)
    class Stubborn:
        limit: int = 3

    Stubborn.__annotations__["limit"] = "int | None"
    with pytest.raises(InvalidInput, match=r"limit = None would read back as 3; give .* None"):
        to_toml(Stubborn(None))
    with pytest.raises(InvalidInput, match=r"sizes = \[1\] would read back as \(1,\)"):
        to_toml(replace(PLAIN, sizes=[1]))
    with pytest.raises(InvalidInput, match=r"Sample: count = '1' \(str\): expected an integer"):
        to_dict(replace(PLAIN, count="1"))
    with pytest.raises(InvalidInput, match="not a character"):
        to_toml(replace(PLAIN, label="\ud800"))
    with pytest.raises(InvalidInput, match="expected a dataclass instance"):
        to_dict(Sample)


def test_an_unregistered_kind_is_not_written() -> None:
    @dataclass(frozen=True)
    class Square(Shape):
        def area(self) -> float:
            return 1.0

    with pytest.raises(InvalidInput, match="Square has no registered name"):
        to_toml(replace(PLAIN, shape=Square()))


@pytest.mark.parametrize("annotation", ["dict[str, int]", "tuple[bytes, ...]", "Part | Sample"])
def test_a_type_that_toml_cannot_hold_is_the_field_s_fault(annotation: str) -> None:
    @dataclass(frozen=True)
    class Odd:
        entries: int = 0

    Odd.__annotations__["entries"] = annotation
    with pytest.raises(InvalidInput, match=r"Odd\.entries cannot be in a config"):
        from_dict(Odd, {})


def test_merge_goes_table_by_table_and_changes_no_argument() -> None:
    table = {"a": 1, "b": {"c": 2, "d": 3}, "s": {"kind": "x", "w": 1}}
    overrides = {"b": {"c": 4}, "e": 5, "s": {"kind": "y", "h": 2}}
    merged = {"a": 1, "b": {"c": 4, "d": 3}, "e": 5, "s": {"kind": "y", "h": 2}}
    assert merge(table, overrides) == merged
    assert table == {"a": 1, "b": {"c": 2, "d": 3}, "s": {"kind": "x", "w": 1}}
    assert merge(table, {"a": None, "b": {"d": None}, "s": {"w": 2}}) == {
        "b": {"c": 2},
        "s": {"kind": "x", "w": 2},
    }


def test_configs_read_back_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        from_dict(Part, {"name": "a"}).size = 3
