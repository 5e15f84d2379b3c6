"""Names resolve to exactly one thing, and only what is asked for is imported."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from beliefspace.core import registry
from beliefspace.core.errors import BeliefspaceError, InvalidInput, UnknownName
from beliefspace.core.registry import load_file, name_of, names, register, resolve


class FakePoint:
    """An entry point that counts how often it is loaded."""

    def __init__(self, name: str, value: str, load: object) -> None:
        self.name, self.value, self._load, self.loaded = name, value, load, 0

    def load(self) -> object:
        self.loaded += 1
        return self._load()


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> dict:
    """Start every test with nothing registered, no built-in module and no entry point."""
    points: dict[str, list[FakePoint]] = {}
    monkeypatch.setattr(registry, "_entries", {})
    monkeypatch.setattr(registry, "_by_value", {})
    monkeypatch.setattr(registry, "_scanned", set())
    absent = dict.fromkeys(registry.GROUPS, "beliefspace.absent.package")
    monkeypatch.setattr(registry, "GROUPS", absent)
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda *, group: tuple(points.get(group, ()))
    )
    return points


def test_a_class_and_a_function_are_found_by_name_and_named_when_found() -> None:
    @register("tasks", "coin")
    @dataclass(frozen=True)
    class Coin:
        bias: float = 0.5

    @register("diagnostics", "coin")
    def diagnose() -> None: ...

    assert resolve("tasks", "coin") is Coin
    assert resolve("diagnostics", "coin") is diagnose
    assert name_of(Coin) == name_of(Coin(0.1)) == ("tasks", "coin")
    assert name_of(diagnose) == ("diagnostics", "coin")
    assert names("tasks") == ["coin"]
    assert names("models") == []


def test_a_duplicate_names_both_places_and_keeps_the_first() -> None:
    @register("tasks", "coin")
    def first() -> None: ...

    with pytest.raises(InvalidInput) as caught:

        @register("tasks", "coin")
        def second() -> None: ...

    places = [word for word in str(caught.value).split() if __file__ in word]
    assert len(places) == 2
    assert places[0] != places[1]
    assert resolve("tasks", "coin") is first


def test_one_object_has_one_name() -> None:
    @register("tasks", "coin")
    def coin() -> None: ...

    with pytest.raises(InvalidInput, match="has a name already: 'coin' in group 'tasks'"):
        register("models", "coin")(coin)


def test_running_a_notebook_cell_again_replaces_the_definition() -> None:
    cell = textwrap.dedent("""
        from beliefspace.core.registry import register
        @register("tasks", "coin")
        def coin(): ...
    """)
    notebook = {"__name__": "__main__"}
    exec(cell, notebook)
    first = notebook["coin"]
    exec(cell, notebook)
    assert resolve("tasks", "coin") is notebook["coin"] is not first
    with pytest.raises(InvalidInput, match="registered twice"):
        exec(cell.replace("def coin", "def other"), notebook)


@pytest.mark.parametrize("value", [type("Bare", (), {}), dataclass(type("Thawed", (), {}))])
def test_a_class_must_be_a_frozen_dataclass(value: type) -> None:
    with pytest.raises(InvalidInput, match=r"not a frozen dataclass; put @register\('tasks', 'x'"):
        register("tasks", "x")(value)
    assert names("tasks") == []


def test_a_subclass_does_not_inherit_the_dataclass_or_the_name() -> None:
    @register("tasks", "coin")
    @dataclass(frozen=True)
    class Coin:
        bias: float = 0.5

    class Child(Coin):
        pass

    with pytest.raises(InvalidInput, match="Child has no registered name"):
        name_of(Child)
    with pytest.raises(InvalidInput, match="not a frozen dataclass"):
        register("tasks", "child")(Child)


@pytest.mark.parametrize("bad", ["", "Coin", "a b", "-a", "a--b", "a/b"])
def test_a_name_is_lower_case_words(bad: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be a name in group 'tasks'"):
        register("tasks", bad)


def test_unknown_names_and_groups_give_the_nearest() -> None:
    @register("tasks", "bijection")
    def bijection() -> None: ...

    with pytest.raises(UnknownName, match="unknown task 'bijectoin'; nearest: bijection"):
        resolve("tasks", "bijectoin")
    with pytest.raises(UnknownName, match="unknown group 'task'; nearest: tasks"):
        names("task")


def test_only_the_matching_entry_point_is_loaded(empty: dict) -> None:
    def coin() -> None: ...

    def explode() -> None:
        raise AssertionError("must not be loaded")

    wanted = FakePoint("coin", "plugin:coin", lambda: coin)
    other = FakePoint("die", "plugin:die", explode)
    elsewhere = FakePoint("coin", "plugin:model", explode)
    empty["beliefspace.tasks"] = [other, wanted]
    empty["beliefspace.models"] = [elsewhere]

    assert names("tasks") == ["coin", "die"]
    assert wanted.loaded == 0
    assert resolve("tasks", "coin") is resolve("tasks", "coin") is coin
    assert (wanted.loaded, other.loaded, elsewhere.loaded) == (1, 0, 0)
    assert name_of(coin) == ("tasks", "coin")


def test_what_is_registered_wins_over_an_entry_point(empty: dict) -> None:
    point = FakePoint("coin", "plugin:coin", lambda: pytest.fail("loaded"))
    empty["beliefspace.tasks"] = [point]

    @register("tasks", "coin")
    def coin() -> None: ...

    assert resolve("tasks", "coin") is coin
    assert names("tasks") == ["coin"]


def test_an_entry_point_may_register_itself(empty: dict) -> None:
    def load() -> object:
        @register("tasks", "coin")
        def coin() -> None: ...

        return coin

    empty["beliefspace.tasks"] = [FakePoint("coin", "plugin:coin", load)]
    assert resolve("tasks", "coin").__name__ == "coin"


def test_a_broken_entry_point_is_named(empty: dict) -> None:
    def load() -> object:
        raise ModuleNotFoundError("No module named 'jax'")

    empty["beliefspace.tasks"] = [FakePoint("coin", "plugin:coin", load)]
    with pytest.raises(BeliefspaceError, match=r"'coin' of beliefspace.tasks \(plugin:coin\).*jax"):
        resolve("tasks", "coin")


def test_two_entry_points_of_one_name_are_refused(empty: dict) -> None:
    empty["beliefspace.tasks"] = [
        FakePoint("coin", f"{plugin}:coin", lambda: pytest.fail("loaded")) for plugin in "ab"
    ]
    with pytest.raises(InvalidInput, match="twice: a:coin and b:coin"):
        resolve("tasks", "coin")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a built-in package with one module, as the home of the group "tasks"."""
    name = f"built_in_{tmp_path.name}".replace("-", "_")
    home = tmp_path / name
    home.mkdir()
    (home / "__init__.py").write_text("")
    (home / "coin.py").write_text(
        "from beliefspace.core.registry import register\n"
        "@register('tasks', 'coin')\ndef coin(): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(registry.GROUPS, "tasks", name)
    return home


def test_built_in_modules_are_imported_once_and_only_for_their_group(package: Path) -> None:
    names("models")
    assert f"{package.name}.coin" not in sys.modules
    assert names("tasks") == ["coin"]
    module = sys.modules[f"{package.name}.coin"]
    assert resolve("tasks", "coin") is module.coin
    assert sys.modules[f"{package.name}.coin"] is module


def test_a_broken_built_in_module_raises_its_own_error_each_time(package: Path) -> None:
    broken = (package / "coin.py").read_text() + "import absent_dependency\n"
    (package / "coin.py").write_text(broken)
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="absent_dependency"):
            names("tasks")
    assert registry._entries == {}


def test_registered_classes_are_attributes_of_their_package(package: Path, tmp_path: Path) -> None:
    built_in = USER_FILE.replace('"mine"', '"die"').replace("Mine", "Die")
    (package / "die.py").write_text(built_in)
    (package / "__init__.py").write_text(
        "from beliefspace.core.registry import exporter\n__getattr__, __dir__ = exporter('tasks')\n"
    )
    other = built_in.replace('"die"', '"other"').partition("\n")[2]  # one __future__ is enough
    (tmp_path / "user.py").write_text(USER_FILE + other)
    load_file(tmp_path / "user.py")
    home = importlib.import_module(package.name)
    assert home.Mine is resolve("tasks", "mine")
    # A class of the same name from elsewhere does not hide the built-in one.
    assert home.Die is resolve("tasks", "die") is not resolve("tasks", "other")
    assert {"Mine", "Die", "__name__"} <= set(dir(home))
    with pytest.raises(AttributeError, match="unknown task class 'Dye'; nearest: Die"):
        _ = home.Dye
    with pytest.raises(AttributeError):
        _ = home.__wrapped__


USER_FILE = """\
from __future__ import annotations
from dataclasses import dataclass
from beliefspace.core.registry import register

@register("tasks", "mine")
@dataclass(frozen=True)
class Mine:
    width: int = 3
"""


def test_a_file_is_imported_once_under_a_name_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(USER_FILE)
    assert load_file(file) == [("tasks", "mine")]
    first = resolve("tasks", "mine")
    assert load_file(tmp_path / "." / "mine.py") == [("tasks", "mine")]
    assert resolve("tasks", "mine") is first
    assert sys.modules[first.__module__].Mine is first


def test_a_file_that_fails_leaves_nothing_and_can_be_mended(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(USER_FILE + "1 / 0\n")
    with pytest.raises(InvalidInput, match=r"mine.py, line 9: ZeroDivisionError"):
        load_file(file)
    assert names("tasks") == []
    file.write_text(USER_FILE + "width = 4\n")
    assert load_file(file) == [("tasks", "mine")]


def test_a_file_that_ends_the_program_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(USER_FILE + "raise SystemExit\n")
    with pytest.raises(BeliefspaceError) as caught:
        load_file(file)
    assert str(caught.value) == f"{file} called sys.exit"
    assert names("tasks") == []


@pytest.mark.parametrize(
    ("content", "message"),
    [("def f(:\n", "line 1: SyntaxError"), ("import no_such_module", "line 1: ModuleNotFound")],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "bad.py"
    file.write_text(content)
    with pytest.raises(InvalidInput, match=message) as caught:
        load_file(file)
    assert "\n" not in str(caught.value)


def test_two_files_with_the_same_name_clash_by_place(tmp_path: Path) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(USER_FILE)
    load_file(tmp_path / "a" / "mine.py")
    with pytest.raises(InvalidInput, match=r"twice.*a/mine.py:\d+ and at .*b/mine.py:\d+"):
        load_file(tmp_path / "b" / "mine.py")
    assert names("tasks") == ["mine"]


@pytest.mark.parametrize("name", ["absent.py", "notes.txt", "."])
def test_only_an_existing_python_file_is_loaded(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(InvalidInput, match=r"expected an existing .py file"):
        load_file(tmp_path / name)
