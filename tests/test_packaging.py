"""What a person gets: one version, a light command line, the small torch, true documents."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from beliefspace.cli.doctor import doctor

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSTRAINTS = (ROOT / "constraints" / "cpu.txt").read_text().splitlines()
MAKEFILE = (ROOT / "Makefile").read_text()

HEAVY = ("torch", "matplotlib", "jinja2", "clarabel")

RUN_THEN_LIST = """
import sys
from beliefspace.cli.main import main
try:
    status = main(sys.argv[1:])
except SystemExit as stop:
    status = stop.code
heavy = sorted(set({heavy!r}) & set(sys.modules))
sys.exit(f"imported {{heavy}}" if heavy else status)
"""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["list"], ["describe", "bijection"], ["claims"]], ids=" ".join
)
def test_light_commands_import_nothing_heavy(arguments):
    code = RUN_THEN_LIST.format(heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_one_version_everywhere():
    import beliefspace

    version = PROJECT["version"]
    assert metadata.version("beliefspace") == version
    assert beliefspace.__version__ == version
    assert re.search(rf"^version: {re.escape(version)}$", (ROOT / "CITATION.cff").read_text(), re.M)


def test_the_command_is_installed():
    (command,) = metadata.entry_points(group="console_scripts", name="beliefspace")
    assert command.value == "beliefspace.cli.main:main"


def test_every_extra_for_users_is_in_all():
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    inside = set(re.fullmatch(r"beliefspace\[(.+)\]", everything)[1].split(","))
    assert inside == set(extras) - {"all", "test", "checks", "dev"}


def test_the_constraints_pin_what_is_asked_for():
    assert CONSTRAINTS[0] == "torch==2.13.0"
    pins = [line for line in CONSTRAINTS if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
    pinned = {pin.split("==")[0].lower().replace("_", "-") for pin in pins}
    extras = PROJECT["optional-dependencies"].values()
    asked = [*PROJECT["dependencies"], *(line for lines in extras for line in lines)]
    names = {re.match(r"[\w-]+", line)[0].lower() for line in asked} - {"beliefspace"}
    assert names <= pinned


def test_the_small_torch_has_no_gpu_packages():
    names = sorted(d.name.lower() for d in metadata.distributions())
    gpu = [name for name in names if name.startswith(("nvidia-", "triton"))]
    torch = doctor()["torch"]
    if torch["build"] != "cpu" and not os.environ.get("CI"):
        pytest.skip(f"torch here is the build for {torch['build']}, as a GPU needs it")
    assert torch["build"] == "cpu"
    assert gpu == []


def test_the_readme_names_only_targets_that_exist():
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```(?:bash|sh|console|shell)\n(.*?)^```", readme, re.M | re.S)
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.M))
    used = set(re.findall(r"^(?:\$ )?make ([a-z]+)", "\n".join(blocks), re.M))
    assert {"demo", "test"} <= used
    assert used <= targets


def test_make_help_lists_every_target():
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    phony = re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.M)[1].split()
    assert re.findall(r"^ *make (\w+)", done.stdout, re.M) == phony


# Homes, mounted checkouts and the like; written so that this file does not match itself.
MACHINE_PATH = re.compile(r"(?<![\w.:/])/(?:home|Users|root|work|workspace|mnt|opt)/[\w.]")


def files_of_the_project() -> list[Path]:
    """Return the files that git has or would take; without git, those of the source archive."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [
            path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()
        ]
    folders = ("src", "tests", "tools", "constraints")
    return [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]


def test_no_file_names_a_path_of_one_machine():
    found = []
    for path in files_of_the_project():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in MACHINE_PATH.finditer(text)]
    assert found == []
    assert MACHINE_PATH.search("in /" + "home/someone")
