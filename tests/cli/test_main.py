"""From what went wrong to a line and an exit status; nothing but JSON where JSON is asked for."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

import beliefspace as package
from beliefspace.cli import catalog
from beliefspace.cli.commands import COMMANDS
from beliefspace.cli.console import Answer
from beliefspace.cli.main import main
from beliefspace.core.errors import BeliefspaceError, InvalidInput, missing_extra

COMMAND = [sys.executable, "-m", "beliefspace.cli.main"]


def with_command(monkeypatch, function):
    """Put a function in the place of the command ``list``."""
    monkeypatch.setattr(catalog, "list_names", function)


def raising(error):
    def command(_arguments):
        raise error

    return command


def test_help_names_every_command(beliefspace):
    done = beliefspace("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("  ")]
    assert set(COMMANDS) <= {words[0] for words in lines}
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_fits(name, capsys):
    assert main([name, "--help"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"usage: beliefspace {name}")
    assert err == ""
    assert max(map(len, out.splitlines())) <= 100


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"beliefspace {package.__version__}\n"


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (InvalidInput("wrong"), 2, "wrong"),
        (BeliefspaceError("two\n  lines"), 1, "two lines"),
        (missing_extra("torch", "tunnel"), 1, "this needs torch, which is not installed"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (PermissionError(errno.EACCES, "Permission denied", "x.toml"), 1, "x.toml: Permission"),
        (ZeroDivisionError("no"), 1, "ZeroDivisionError: no; run with --debug for the traceback"),
    ],
)
def test_errors(monkeypatch, capsys, error, status, line):
    with_command(monkeypatch, raising(error))
    assert main(["list"]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"beliefspace: {line}")
    assert err.count("\n") == 1
    assert main(["list", "--debug"]) == status
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert f"\nbeliefspace: {line}" in err


def test_a_traceback_from_another_process_is_shown(monkeypatch, capsys):
    error = BeliefspaceError("a unit failed")
    error.add_note("Traceback of the unit")
    with_command(monkeypatch, raising(error))
    assert main(["list"]) == 1
    assert "Traceback" not in capsys.readouterr().err
    main(["--debug", "list"])
    assert "Traceback of the unit\n" in capsys.readouterr().err


def test_it_is_also_a_module_that_can_be_run():
    command = [sys.executable, "-m", "beliefspace", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"beliefspace {package.__version__}\n")
    assert subprocess.run([*command[:-1], "trian"], stderr=subprocess.DEVNULL).returncode == 2


def test_json_is_alone_on_standard_output(tmp_path):
    """What a user's file prints, also from a child process, goes to standard error."""
    (tmp_path / "loud.py").write_text(
        "import os, numpy as np\n"
        "print('loading'); os.system('echo a child')\n"
        "def uniform(x):\n"
        "    print('called')\n"
        "    return np.zeros((*x.shape, 4))\n"
    )
    flags = ["--task", "bijection", "--task.values", "4", "--sequences", "8"]
    done = subprocess.run(
        [*COMMAND, "evaluate", "loud.py:uniform", *flags, "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["score"]["kl_bits"]["by_position"][0] == pytest.approx(0.0, abs=1e-12)
    # The rung of matched entropies is infinitely far off; JSON has no infinity.
    assert found["score"]["ladder"]["position entropy"]["kl_bits"]["mean"] == "inf"
    assert {"loading", "a child", "called"} <= set(done.stderr.split("\n"))


def test_a_reader_that_has_seen_enough():
    command = [*COMMAND, "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


@pytest.mark.parametrize(("closed", "status"), [("2>&-", 2), (">&-", 1), ("2>/dev/full", 2)])
def test_an_output_that_is_closed_or_full(closed, status):
    """An error never lands among the answers, and keeps its status where nobody sees it."""
    done = subprocess.run(
        ["bash", "-c", f'"$@" {closed}', "bash", *COMMAND, "trian"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (status, "")
    line = "beliefspace: standard output is closed, and the answer goes there\n"
    assert done.stderr == (line if closed == ">&-" else "")


def test_ctrl_c_while_modules_are_imported(tmp_path):
    """The signal comes from a stand-in for numpy, in the middle of the imports."""
    (tmp_path / "numpy.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    done = subprocess.run(
        [*COMMAND, "list"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "beliefspace: interrupted\n"


def test_a_directory_that_was_removed(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["claims"]) == 1
    assert capsys.readouterr().err.startswith("beliefspace: the current directory was removed")


@pytest.mark.parametrize("raised", ["sys.exit(0)", "raise GeneratorExit"])
def test_code_that_ends_the_program_is_no_success(tmp_path, capsys, raised):
    (tmp_path / "loading.py").write_text(f"import sys\n{raised}\n")
    (tmp_path / "called.py").write_text(f"import sys\ndef f(x):\n    {raised}\n")
    what = "called sys.exit" if "exit" in raised else "raised GeneratorExit"
    loading, called = str(tmp_path / "loading.py"), f"{tmp_path / 'called.py'}:f"
    score = ["evaluate", called, "--task", "bijection", "--task.values", "4", "--sequences", "8"]
    for arguments, named in (
        (["train", loading], loading),
        (["list", "--plugin", loading], loading),
        (score, called),
    ):
        assert main(arguments) == 1
        assert capsys.readouterr() == ("", f"beliefspace: {named} {what}\n")


def test_a_command_that_ends_the_program_is_no_success(monkeypatch, capsys):
    """As where a task's own method does, deep inside."""
    with_command(monkeypatch, raising(SystemExit(0)))
    assert main(["list"]) == 1
    assert "called sys.exit" in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_an_output_that_is_full():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "list"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith("beliefspace: no space is left")
    assert done.stderr.count("\n") == 1


def test_answers_are_shown_as_asked(monkeypatch, capsys):
    for as_json, shown in ((False, "words\n"), (True, '{\n  "a": "inf"\n}\n')):
        answer = Answer(("words",), {"a": float("inf")}, as_json)
        with_command(monkeypatch, lambda _, answer=answer: answer)
        assert main(["list"]) == 0
        assert capsys.readouterr().out == shown


def test_commands_are_imported_one_at_a_time():
    code = (
        "import sys; from beliefspace.cli.main import main; main(['--help']); "
        "sys.exit(' '.join({'tyro', 'rich', 'scipy', 'torch'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
