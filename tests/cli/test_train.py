"""Runs from the command line: trained, gone on with, scored again, compared, reported."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from tests.cli.conftest import SMALL, everything

from beliefspace.cli.main import main
from beliefspace.core.files import _write_synced
from beliefspace.core.statistics import mean_t
from beliefspace.core.store import Run
from beliefspace.runs.engines import Local


def test_a_run_is_what_its_flags_say(trained, trained_path):
    data = json.loads(trained.stdout)
    (run,) = data["runs"]
    assert run["path"] == "run"
    assert run["training"]["steps"] == 20
    stored = Run.open(trained_path)
    assert stored.status == "finished"
    assert run["score"] == stored.result()["score"]
    config = tomllib.loads(stored.config_toml())
    assert config["task"]["values"] == 4
    assert config["model"]["width"] == 16
    assert config["schedule"]["budget"] == "20 steps"


def test_progress_is_one_line_a_look(trained):
    lines = trained.stderr.splitlines()
    assert [line.split(",")[0] for line in lines] == ["run: step 10 of 20", "run: step 20 of 20"]
    assert all("KL" in line and "entropy error" in line for line in lines)


def test_one_seed_has_no_interval(trained):
    data = json.loads(trained.stdout)
    assert data["kl_bits"] == {
        "mean": data["runs"][0]["score"]["kl_bits"]["mean"],
        "interval": None,
        "count": 1,
    }


def test_the_same_command_again_keeps_the_run(beliefspace, tmp_path, trained, trained_path):
    shutil.copytree(trained_path, tmp_path / "run")
    before = everything(tmp_path)
    again = beliefspace("train", "bijection", *SMALL, "--out", "run", "--json")
    assert again.returncode == 0, again.stderr
    assert again.stdout == trained.stdout
    assert again.stderr == ""
    assert everything(tmp_path) == before


def test_a_run_that_was_cut_off_ends_the_same(beliefspace, tmp_path, trained, trained_path):
    """Without its last steps, a run resumes to the same bits."""
    shutil.copytree(trained_path, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / "checkpoints").mkdir()
    (tmp_path / "run" / "result.json").unlink()
    header = (tmp_path / "run" / "run.json").read_text()
    (tmp_path / "run" / "run.json").write_text(header.replace('"finished"', '"running"'))
    done = beliefspace("resume", "run", "--json")
    assert done.returncode == 0, done.stderr
    score = json.loads(trained.stdout)["runs"][0]["score"]
    assert json.loads(done.stdout)["runs"][0]["score"] == score
    name = "checkpoints/step-00000020.safetensors"
    assert (tmp_path / "run" / name).read_bytes() == (trained_path / name).read_bytes()


def test_a_run_is_scored_again_as_it_was(capsys, trained, trained_path):
    assert main(["evaluate", str(trained_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["score"] == json.loads(trained.stdout)["runs"][0]["score"]
    assert found["task"]["values"] == 4


def test_a_run_on_other_sequences_and_another_setting(capsys, trained_path):
    flags = ["--seed", "7", "--sequences", "32", "--task.pairs", "3"]
    assert main(["evaluate", str(trained_path), *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["score"]["seed"], found["score"]["sequences"]) == (7, 32)
    assert found["score"]["positions"] == [0, 2, 4]


def test_a_score_as_text(capsys, trained_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["evaluate", str(trained_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[1:])) <= 100
    rows = [line.split("  ")[0] for line in lines]
    assert {"this model", "uniform", "position entropy", "bag-of-values c=20"} <= set(rows)


def test_a_predictor_that_is_exact(beliefspace, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "exact.py").write_text(EXACT)
    flags = ["--task", "bijection", "--task.values", "4", "--sequences", "32", "--json"]
    done = beliefspace("evaluate", "package.exact:model.logits", *flags)
    assert done.returncode == 0, done.stderr
    score = json.loads(done.stdout)["score"]
    assert score["kl_bits"]["mean"] == pytest.approx(0.0, abs=1e-12)
    assert score["leaked_inside"]["mean"] == 0.0


EXACT = """
import numpy as np


class Model:
    def logits(self, inputs):
        seen = np.zeros((*inputs.shape, 4))
        for position in range(1, inputs.shape[1]):
            seen[:, position] = seen[:, position - 1]
            if position % 2:
                seen[np.arange(len(inputs)), position, inputs[:, position] - 4] = 1
        with np.errstate(divide="ignore"):
            logits = np.log(1 - seen)
        logits[:, 1::2] = 0
        return logits


model = Model()
"""


def test_seeds_side_by_side(beliefspace, tmp_path, capsys):
    done = beliefspace("train", "bijection", *SMALL, "--seeds", "2", "--seed", "5", "--out", "both")
    assert done.returncode == 0, done.stderr
    assert "KL over 2 seeds" in done.stdout
    runs = [Run.open(tmp_path / "both" / f"seed-{seed}") for seed in (5, 6)]
    values = np.array([run.result()["score"]["kl_bits"]["mean"] for run in runs])
    assert values[0] != values[1]
    assert main(["compare", str(tmp_path / "both"), "--json"]) == 0
    (arm,) = json.loads(capsys.readouterr().out)["arms"]
    assert arm["values"] == {"5": values[0], "6": values[1]}
    assert arm["estimate"]["mean"] == pytest.approx(mean_t(values).mean, rel=1e-12)
    assert main(["compare", str(tmp_path / "both"), "--metric", "total_variation"]) == 0
    assert "total_variation" in capsys.readouterr().out.splitlines()[0]
    assert main(["resume", str(tmp_path / "both"), "--json"]) == 0
    names = [run["name"] for run in json.loads(capsys.readouterr().out)["runs"]]
    assert names == ["seed-5", "seed-6"]


def test_a_comparison_needs_a_metric_that_is_there(capsys, tmp_path, trained_path):
    shutil.copytree(trained_path, tmp_path / "copy")
    arguments = ["compare", str(trained_path), str(tmp_path / "copy")]
    assert main([*arguments, "--metric", "kl_bit"]) == 2
    assert "nearest: kl_bits" in capsys.readouterr().err
    assert main([str(one) for one in arguments]) == 2
    assert "same seed" in capsys.readouterr().err
    assert main([*arguments[:2], arguments[1]]) == 2
    assert "2 runs or more; got 1" in capsys.readouterr().err


def test_a_report_is_written(capsys, tmp_path, trained_path):
    shutil.copytree(trained_path, tmp_path / "run")
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "run"), "--out", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(page), "figures": []}
    assert page.read_text().lstrip().lower().startswith("<!doctype html>")


def test_claims_with_and_without_runs(capsys, monkeypatch, tmp_path, trained_path):
    monkeypatch.chdir(tmp_path)
    assert main(["claims", "--json"]) == 0
    bare = json.loads(capsys.readouterr().out)
    assert bare["runs"] == []
    assert bare["claims"]
    assert main(["claims", "--runs", str(trained_path.parent), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == [str(trained_path)]
    assert main(["claims"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "0 finished runs" in lines[-1]


def test_torch_that_is_missing(capsys, monkeypatch, tmp_path):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    assert main(["train", "bijection", "--out", str(tmp_path / "run")]) == 1
    assert 'pip install "beliefspace[tunnel]"' in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_no_run(capsys, monkeypatch, tmp_path):
    """In this process, where the disk can be made to fill up at the third file."""
    written = []

    def fills_up(path, content):
        written.append(path)
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        _write_synced(path, content)

    def here(_engine, units, observe):
        for unit in units:
            unit.work()(unit.config, unit.out, observe)

    monkeypatch.setattr("beliefspace.core.files._write_synced", fills_up)
    monkeypatch.setattr(Local, "run", here)
    assert main(["train", "bijection", *SMALL, "--out", str(tmp_path / "run")]) == 1
    err = capsys.readouterr().err
    assert "the disk or quota is full" in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def filed(beliefspace, tmp_path):
    """A run "run" on a task from the file filed_coin.py, which says so when it is loaded."""
    assert main(["new", "task", "filed-coin", "--out", str(tmp_path)]) == 0
    file = tmp_path / "filed_coin.py"
    file.write_text(file.read_text() + "print('the file was run')\n")
    flags = [flag for flag in SMALL if flag not in ("--task.values", "4")]
    done = beliefspace("train", "filed_coin.py", *flags, "--task.length", "5", "--out", "run")
    assert done.returncode == 0, done.stderr
    (recorded,) = json.loads((tmp_path / "run" / "environment.json").read_text())["plugins"]
    assert recorded["path"] == str(file.resolve())
    return file.resolve()


def test_code_that_a_run_names_is_run_only_when_asked_for(beliefspace, tmp_path, filed, refused):
    for command in ("evaluate", "resume"):
        line = refused(2, command, "run")
        assert "unknown task 'filed-coin'" in line
        assert f"needs code from {filed} (unchanged since); " in line
        assert line.endswith(f"if you trust it, add: --plugin {filed}")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert "needs code from" in refused(2, "compare", "run", "copy")
    claims = beliefspace("claims", "--runs", ".")
    assert claims.returncode == 0
    assert "needs code from" in claims.stderr
    for done in (claims, beliefspace("report", "run")):
        assert done.returncode == 0, done.stderr
        assert "the file was run" not in done.stdout + done.stderr
    asked = (
        beliefspace("--plugin", "filed_coin.py", "evaluate", "run", "--json"),
        beliefspace("evaluate", "run", "--json", "--plugin=filed_coin.py"),
    )
    for done in asked:
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["task"] == {"kind": "filed-coin", "coins": 9, "length": 5}
    assert asked[0].stdout == asked[1].stdout


def test_a_stopped_run_on_a_file_goes_on_with_it(beliefspace, tmp_path, filed):
    """Also in the processes that train; a file that is another one by now is noted."""
    run = tmp_path / "run"
    before = json.loads((run / "result.json").read_text())["score"]
    header = (run / "run.json").read_text()
    (run / "run.json").write_text(header.replace('"finished"', '"interrupted"'))
    for file in (run / "checkpoints").iterdir():
        file.unlink()
    (run / "result.json").unlink()
    done = beliefspace("resume", "run", "--plugin", "filed_coin.py", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"][0]["score"] == before
    assert "is not the filed_coin.py" not in done.stderr
    filed.write_text(filed.read_text() + "# changed\n")
    changed = beliefspace("resume", "run", "--plugin", "filed_coin.py")
    assert changed.returncode == 0, changed.stderr
    assert f"{filed} is not the filed_coin.py that run was made with" in changed.stderr


def test_a_plugin_must_be_there(refused):
    assert "'absent.py': expected an existing .py file" in refused(
        2, "list", "--plugin", "absent.py"
    )
    assert refused(2, "list", "--plugin") == "--plugin takes a file: --plugin FILE.py"


def test_an_unfinished_run_is_scored_as_it_stands_and_that_is_said(
    beliefspace, tmp_path, trained_path
):
    run = tmp_path / "run"
    shutil.copytree(trained_path, run)
    finished = json.loads(beliefspace("evaluate", "run", "--json").stdout)
    assert (finished["status"], finished["step"]) == ("finished", 20)
    header = (run / "run.json").read_text()
    (run / "run.json").write_text(header.replace('"finished"', '"interrupted"'))
    done = beliefspace("evaluate", "run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == finished | {"status": "interrupted"}
    assert done.stderr == "note: run is not finished (status: interrupted); scored after step 20\n"


@pytest.mark.slow
def test_a_stopped_run_is_kept_and_gone_on_with(beliefspace, tmp_path):
    flags = [flag if flag != "20 steps" else "2000 steps" for flag in SMALL]
    flags[-1] = "200"
    command = [sys.executable, "-m", "beliefspace.cli.main", "train", "bijection", *flags]
    with subprocess.Popen(
        [*command, "--out", "run"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        assert any("step 10 of" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read().splitlines()
    assert process.returncode == 130
    assert [line for line in rest if line.startswith("beliefspace: ")] == rest[-1:]
    assert Run.open(tmp_path / "run").status == "interrupted"
    done = beliefspace("resume", "run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"][0]["training"]["steps"] == 2000


@pytest.mark.slow
def test_the_demo(beliefspace, tmp_path):
    done = beliefspace("demo", "--budget", "60 steps", "--out", "demo", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    (page,) = (tmp_path / "demo").rglob("*.html")
    again = beliefspace("demo", "--budget", "60 steps", "--out", "demo", "--json")
    assert again.returncode == 0
    assert (again.stdout, again.stderr) == (done.stdout, "")
    assert page.exists()
