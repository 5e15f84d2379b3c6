from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beliefspace.core.errors import InvalidInput
from beliefspace.core.jsonable import jsonable, to_json


@dataclass(frozen=True)
class Inner:
    low: float
    name: str


@dataclass(frozen=True)
class Outer:
    zeta: Inner | None
    alpha: tuple[Inner, ...]
    values: np.ndarray


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_plain_data_come_back_unchanged(data):
    assert json.loads(to_json(data)) == data
    assert jsonable(data) == data


@given(st.floats())
def test_every_float_is_read_back_by_float(number):
    back = float(json.loads(to_json(number)))
    assert back == number or (np.isnan(back) and np.isnan(number))


def test_numbers_that_are_not_finite_are_strings():
    got = jsonable([np.inf, -np.inf, np.nan, np.float32(np.inf), np.array([1.0, -np.inf])])
    assert got == ["inf", "-inf", "nan", "inf", [1.0, "-inf"]]


def test_dataclasses_keep_the_order_of_their_fields():
    outer = Outer(None, (Inner(1.5, "a"), Inner(-np.inf, "b")), np.array([[1, 2], [3, 4]]))
    assert to_json(outer) == (
        '{"zeta": null, "alpha": [{"low": 1.5, "name": "a"}, {"low": "-inf", "name": "b"}], '
        '"values": [[1, 2], [3, 4]]}'
    )


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.float32(0.5), 0.5),
        (np.str_("word"), "word"),
        (np.array(2.0), 2.0),
        (np.array([True, False]), [True, False]),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.zeros((2, 0)), [[], []]),
        (np.array([Path("a"), None], dtype=object), ["a", None]),
    ],
)
def test_numpy_becomes_plain(value, plain):
    got = jsonable(value)
    assert got == plain
    assert type(got) is type(plain)


def test_paths_tuples_and_mappings():
    got = jsonable(
        {"path": Path("runs") / "one", "pair": (1, 2), "map": MappingProxyType({"a": 1})}
    )
    assert got == {"path": str(Path("runs/one")), "pair": [1, 2], "map": {"a": 1}}
    assert list(jsonable(OrderedDict(b=1, a=2))) == ["b", "a"]


def test_number_keys_become_strings():
    assert jsonable({1: "a", np.int64(2): "b", 0.5: "c"}) == {"1": "a", "2": "b", "0.5": "c"}


def test_keys_that_collide_are_refused():
    with pytest.raises(InvalidInput, match=r"object\.deep has two keys that are written '1'"):
        jsonable({"deep": {1: "a", "1": "b"}})


@pytest.mark.parametrize("key", [None, True, (1, 2)])
def test_other_keys_are_refused(key):
    with pytest.raises(InvalidInput, match="expected a string or a number"):
        jsonable({key: 1})


@pytest.mark.parametrize("value", [1j, {1, 2}, b"raw", object(), Inner, np.complex128(1j)])
def test_what_has_no_plain_form_is_refused_with_its_place(value):
    with pytest.raises(InvalidInput, match=rf"object\.curve\[1\] is a {type(value).__name__[:6]}"):
        to_json({"curve": [0.0, value]})


def test_indent():
    assert to_json({"a": 1}, indent=2) == '{\n  "a": 1\n}'
