"""What the README shows is run as it stands there, with shorter budgets."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
PYTHON = [text for language, text in BLOCKS if language == "python"]
COMMANDS = [
    shlex.split(line, comments=True)
    for language, text in BLOCKS
    if language == "bash"
    for line in text.splitlines()
    if line.startswith("beliefspace ")
]
BUDGETS = ("1min", "30s")
PROGRAM = Path(sys.executable).with_name("beliefspace")


def test_there_are_examples_and_the_page_is_short():
    assert len(PYTHON) >= 3
    assert len(COMMANDS) >= 6
    assert len(README.splitlines()) < 200


def test_the_result_table_is_from_a_real_run():
    assert "DEMO_TABLE" not in README
    assert re.search(r"\| transformer, sampled targets, [0-9.]+ CPU min \|", README)


def test_the_task_in_the_readme_keeps_the_contract(tmp_path):
    from beliefspace.core.registry import load_file, resolve
    from beliefspace.windtunnel.conformance import check_task_class

    source = next(text for text in PYTHON if "@register" in text)
    file = tmp_path / "coin.py"
    file.write_text(source.replace('"coin"', '"coin-of-the-readme"'))
    load_file(file)
    check_task_class(resolve("tasks", "coin-of-the-readme"))


@pytest.mark.slow
def test_every_command_and_example_runs(tmp_path):
    (tmp_path / "coin.py").write_text(next(text for text in PYTHON if "@register" in text))
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "models.py").write_text(
        "import numpy as np\n\n\ndef my_module(x):\n    return np.zeros((*x.shape, 10))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    for command in COMMANDS:
        if command[1:3] == ["new", "task"]:
            continue
        shorter = ["30 steps" if word in BUDGETS else word for word in command[1:]]
        words = [match for word in shorter for match in expanded(word, tmp_path)]
        run([str(PROGRAM), *words], tmp_path, environment)
    assert (tmp_path / "runs/wide/seed-0/report.html").exists()
    program = "from my_package.models import my_module\n" + "\n".join(
        text for text in PYTHON if "@register" not in text
    )
    (tmp_path / "program.py").write_text(program)
    printed = run([sys.executable, "program.py"], tmp_path, environment)
    assert "| this model |" in printed
    assert "torch.Size([64, 1, 19, 19])" in printed


def expanded(word: str, folder: Path) -> list[str]:
    """Do what the shell does with a pattern."""
    found = sorted(folder.glob(word)) if "*" in word else []
    return [str(path.relative_to(folder)) for path in found] or [word]


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
