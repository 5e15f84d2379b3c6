"""A new task is whole: its file and its test pass at once, alone, and nothing is overwritten."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np

from beliefspace.cli import new
from beliefspace.cli.main import main
from beliefspace.core import files
from beliefspace.core.registry import load_file, resolve


def test_both_files_pass_with_plain_pytest_in_an_empty_directory(beliefspace, tmp_path):
    done = beliefspace("new", "task", "my-coin", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "name": "my-coin",
        "files": ["my_coin.py", "test_my_coin.py"],
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my_coin.py", "test_my_coin.py"]
    assert len((tmp_path / "my_coin.py").read_text().splitlines()) <= 80
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout
    again = beliefspace("new", "task", "my-coin")
    assert again.returncode == 2
    assert "my_coin.py exists already" in again.stderr


def test_the_docstring_draws_a_true_example(tmp_path, capsys):
    assert main(["new", "task", "drawn-coin", "--out", str(tmp_path / "mine")]) == 0
    file = tmp_path / "mine" / "drawn_coin.py"
    assert load_file(file) == [("tasks", "drawn-coin")]
    lines = [line.split() for line in file.read_text().split('"""')[1].splitlines()]
    written = {
        words[0]: words[1:5] for words in lines if words[:1] and words[0] in ("input", "Bayes")
    }
    seen = np.array([[int(word) for word in written["input"]]])
    predictive = resolve("tasks", "drawn-coin")(coins=3, length=4).predictive(seen)
    expected = [float(Fraction(word)) for word in written["Bayes"]]
    np.testing.assert_allclose(np.exp(predictive.log_probs[:, 1]), expected, rtol=1e-12)
    assert "beliefspace train" in capsys.readouterr().out


def test_one_file_in_the_way_leaves_both_alone(refused, tmp_path):
    (tmp_path / "test_my_coin.py").write_text("mine\n")
    assert "test_my_coin.py exists already" in refused(2, "new", "task", "my-coin")


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch, capsys):
    written = []

    def fills_up(path, content):
        written.append(path)
        if len(written) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        path.write_bytes(content)

    monkeypatch.setattr(files, "_write_synced", fills_up)
    assert main(["new", "task", "my-coin", "--out", str(tmp_path)]) == 1
    assert list(tmp_path.iterdir()) == []
    err = capsys.readouterr().err
    assert "the disk or quota is full" in err
    assert err.count("\n") == 1
    assert len(written) == 2


def test_names_that_are_no_file_names_become_some(tmp_path, capsys):
    assert main(["new", "task", "a.b-c_2", "--out", str(tmp_path)]) == 0
    assert "class ABC2(" in (tmp_path / "a_b_c_2.py").read_text()
    assert 'register("tasks", "a.b-c_2")' in (tmp_path / "a_b_c_2.py").read_text()
    assert new.TASK.count("NAME") == 1
    capsys.readouterr()
