"""Whatever is wrong: the right exit status, one clear line, no traceback, nothing half-written."""

from __future__ import annotations

import fcntl
import os
import shutil
import textwrap

import pytest
from tests.cli.conftest import SMALL

GOOD = """
seed = 3
[task]
kind = "bijection"
values = 4
[model]
kind = "transformer"
width = 16
"""


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--task.values", "1"], ["values is a whole number of at least 2; got 1"]),
        (["--task.values", "4", "--task.pairs", "5"], ["at most 4 pairs", "pairs = 5"]),
        (["--task.valeus", "4"], ["unknown flag --task.valeus", "nearest: --task.values"]),
        (["--task.values", "four"], ["--task.values", "an integer", "'four'"]),
        (["--schedule.clip", "much"], ["--schedule.clip", "a number", "'much'"]),
        (["--task.format", "C"], ["--task.format", "'C'", "'A'", "'B'"]),
        (["--schedule.budget", "5 fortnights"], ["unit of a budget", "fortnights"]),
        (["--schedule.budget"], ["Missing value", "--schedule.budget"]),
        (["--model", "tranformer"], ["unknown model 'tranformer'", "nearest: transformer"]),
        (["--optimizer", "adam"], ["unknown optimizer 'adam'", "nearest: adamw"]),
        (["--model.width", "5", "--model.heads", "2"], ["multiple of heads"]),
        (["--seeds", "0"], ["--seeds 0"]),
        (["--seeds", "1000000"], ["1 to 10,000 seeds", "--seeds 1000000"]),
        (["--workers", "0", "--dry-run"], ["--workers 0"]),
        (["--config", "/"], ["/ is a directory"]),
        (["surplus"], ["unexpected argument 'surplus'"]),
        (["--config", "absent.toml"], ["absent.toml"]),
    ],
    ids=lambda part: " ".join(part) if part[0].startswith("--") or part == ["surplus"] else "",
)
def test_flags_of_train(refused, flags, said):
    line = refused(2, "train", "bijection", *flags)
    for words in said:
        assert words in line


@pytest.mark.parametrize(
    ("replace", "said"),
    [
        (
            ("values = 4", "values = 1"),
            ["recipe.toml", "[task]", "of at least 2; got 1"],
        ),
        (("values = 4", 'values = "4"'), ["task.values", "'4' (str)", "an integer"]),
        (("seed = 3", "seed = true"), ["seed", "True (bool)", "an integer"]),
        (("width = 16", "widht = 16"), ["table [model]", "'widht'", "nearest: width"]),
        (("seed = 3", "sead = 3"), ["'sead'", "nearest: seed"]),
        (('"bijection"', '"bijecton"'), ["unknown task 'bijecton'", "nearest: bijection"]),
        (("seed = 3", "seed = "), ["recipe.toml is not valid TOML", "line 2"]),
    ],
    ids=lambda part: part[1],
)
def test_files_of_train(refused, tmp_path, replace, said):
    assert replace[0] in GOOD
    (tmp_path / "recipe.toml").write_text(GOOD.replace(*replace))
    line = refused(2, "train", "--config", "recipe.toml")
    for words in said:
        assert words in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "say what to do"),
        (["trian"], "unknown command 'trian'; nearest: train"),
        (["train"], "say which task first"),
        (["train", "bijecton"], "unknown task 'bijecton'; nearest: bijection"),
        (["train", "absent.py"], "absent.py"),
        (["list", "taks"], "unknown group 'taks'; nearest: tasks"),
        (["describe"], "missing NAME"),
        (["describe", "bijecton"], "nearest: bijection"),
        (["new", "model", "mine"], "unknown kind 'model'"),
        (["new", "task", "Mine"], "'Mine' cannot be a task's name"),
        (["new", "task", "bijection"], "there is a task 'bijection' already"),
        (["evaluate"], "say what to score"),
        (["evaluate", "absent"], "absent does not exist"),
        (["evaluate", "absent:f", "--task", "bijection"], "cannot import absent"),
        (["evaluate", "math:sin"], "say on which task"),
        (["evaluate", "math:sine", "--task", "bijection"], "unknown function in math 'sine'"),
        (["resume", "absent"], "absent does not exist"),
        (["compare"], "say which runs"),
        (["compare", "absent", "gone"], "absent does not exist"),
        (["report", "absent"], "absent does not exist"),
        (["claims", "--runs", "absent"], "absent does not exist"),
        (["doctor", "--jsn"], "unknown flag --jsn; nearest: --json"),
    ],
    ids=" ".join,
)
def test_arguments(refused, arguments, said):
    assert said in refused(2, *arguments)


def test_an_unknown_device(refused):
    line = refused(2, "train", "bijection", *SMALL, "--hardware.device", "tpu9")
    assert "'tpu9' is not available here; available: cpu" in line


def test_a_directory_that_is_not_empty(refused, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("keep me")
    assert "taken is not empty" in refused(2, "train", "bijection", *SMALL, "--out", "taken")


def test_a_directory_that_holds_another_run(refused, tmp_path, trained_path):
    shutil.copytree(trained_path, tmp_path / "run")
    line = refused(2, "train", "bijection", *SMALL, "--seed", "1", "--out", "run")
    assert "run of another recipe" in line
    line = refused(2, "train", "bijection", *SMALL, "--seeds", "2", "--out", "run")
    assert "holds a run already" in line


def test_a_run_that_is_busy(refused, tmp_path, trained_path):
    run = tmp_path / "run"
    shutil.copytree(trained_path, run)
    header = (run / "run.json").read_text()
    (run / "run.json").write_text(header.replace('"finished"', '"interrupted"'))
    (run / "result.json").unlink()
    with open(run / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        print(f"{os.getpid()} on here", file=lock, flush=True)
        assert f"in use by process {os.getpid()}" in refused(1, "resume", "run")


@pytest.mark.parametrize("command", ["evaluate", "resume"])
def test_a_checkpoint_of_another_config(refused, tmp_path, trained_path, command):
    run = tmp_path / "run"
    shutil.copytree(trained_path, run)
    config = run / "config.toml"
    config.write_text(config.read_text().replace("learning_rate = 0.02", "learning_rate = 0.01"))
    header = (run / "run.json").read_text()
    (run / "run.json").write_text(header.replace('"finished"', '"interrupted"'))
    assert "under another config.toml" in refused(1, command, "run")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda content: content[:-1], "bytes: expected"),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "was altered"),
    ],
    ids=["truncated", "altered"],
)
def test_a_damaged_checkpoint(refused, tmp_path, trained_path, damage, said):
    shutil.copytree(trained_path, tmp_path / "run")
    (file,) = (tmp_path / "run" / "checkpoints").glob("*.safetensors")
    file.write_bytes(damage(file.read_bytes()))
    line = refused(1, "evaluate", "run")
    assert said in line
    assert file.name in line


def test_a_damaged_record_of_a_run(refused, tmp_path, trained_path):
    shutil.copytree(trained_path, tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text("{")
    assert "run.json is not valid JSON" in refused(1, "report", "run")


PREDICTORS = textwrap.dedent(
    """
    import numpy as np

    def wrong_shape(inputs):
        return np.zeros((len(inputs), 4))

    def not_a_number(inputs):
        return np.full((*inputs.shape, 4), np.nan)

    def whole_numbers(inputs):
        return np.zeros((*inputs.shape, 4), dtype=int)

    def fails(inputs):
        return inputs["absent"]

    class Model:
        pass

    value = 3
    """
)


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("wrong_shape", 2, "returned [8, 4]; expected [8, 7, 4]"),
        ("not_a_number", 2, "NaN"),
        ("whole_numbers", 2, "expected real numbers"),
        ("fails", 1, "mine.py:fails failed on inputs [8, 7]: IndexError"),
        ("Model", 2, "is a class"),
        ("value", 2, "is a int"),
        ("fail", 2, "nearest: fails"),
    ],
)
def test_predictors_that_cannot_be_scored(refused, tmp_path, name, status, said):
    (tmp_path / "mine.py").write_text(PREDICTORS)
    flags = ["--task", "bijection", "--task.values", "4", "--sequences", "8"]
    assert said in refused(status, "evaluate", f"mine.py:{name}", *flags)


def test_files_that_register_nothing_or_fail(refused, tmp_path):
    (tmp_path / "empty.py").write_text("x = 1\n")
    assert "empty.py registers no task" in refused(2, "train", "empty.py")
    (tmp_path / "broken.py").write_text("x = 1\ny = z\n")
    assert "broken.py, line 2: NameError" in refused(2, "train", "broken.py")


def test_a_report_does_not_replace_what_is_no_file(refused, tmp_path, trained_path):
    shutil.copytree(trained_path, tmp_path / "run")
    assert "not a file" in refused(2, "report", "run", "--out", os.devnull)
