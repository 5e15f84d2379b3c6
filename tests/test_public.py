"""``import beliefspace as bs``: light, complete, and every name is what it says."""

from __future__ import annotations

import subprocess
import sys

import pytest

import beliefspace as bs
from beliefspace.core import registry
from beliefspace.core.errors import MissingExtra
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.tasks.bijection import Bijection

NAMES = {
    *("Recipe", "Schedule", "Stream", "models", "tasks"),
    *("compare", "load", "run_recipes", "score", "train", "wrap", "write_report"),
}


def in_a_fresh_process(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_it_imports_nothing_else():
    in_a_fresh_process(
        "import sys; before = set(sys.modules); import beliefspace as bs; dir(bs); "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "sys.exit(' '.join(new & {'numpy', 'scipy', 'torch', 'matplotlib', 'tyro', 'rich'}) or 0)"
    )


def test_tasks_models_and_scores_need_no_torch():
    in_a_fresh_process(
        "import sys, numpy as np, beliefspace as bs; task = bs.tasks.Bijection(4); "
        "bs.models.Transformer(width=8); bs.score(lambda x: np.zeros((*x.shape, 4)), task, 8); "
        "bs.train, bs.compare, bs.wrap, bs.write_report, bs.__version__; "
        "sys.exit(' '.join({'torch', 'matplotlib', 'jinja2'} & set(sys.modules)) or 0)"
    )


@pytest.mark.parametrize("name", sorted(NAMES | {"__version__"}))
def test_every_name_is_there(name):
    assert name in dir(bs)
    assert getattr(bs, name) is getattr(bs, name)


def test_an_unknown_name_is_an_attribute_error_that_lists_the_known():
    with pytest.raises(AttributeError, match="it has Recipe, Schedule, Stream, compare"):
        _ = bs.scores


def test_classes_are_attributes_by_their_own_names():
    assert bs.tasks.Bijection is Bijection
    assert bs.models.Transformer is Transformer
    for group, package in (("tasks", bs.tasks), ("models", bs.models)):
        for name in registry.names(group):
            cls = registry.resolve(group, name)
            if not cls.__module__.startswith("beliefspace.windtunnel"):
                continue  # a test module's own
            assert getattr(package, cls.__name__) is cls
            assert cls.__name__ in dir(package)
    with pytest.raises(AttributeError, match="nearest: Bijection"):
        _ = bs.tasks.Bijecton
    with pytest.raises(AttributeError):
        _ = bs.tasks.absent


def test_a_missing_extra_says_how_to_install_it(monkeypatch):
    monkeypatch.delitem(vars(bs), "load", raising=False)
    monkeypatch.delitem(sys.modules, "beliefspace.windtunnel.training", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)

    def absent(name):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(bs.importlib, "import_module", absent)
    with pytest.raises(MissingExtra, match=r"beliefspace\[tunnel\]"):
        _ = bs.load
