"""Make the environment that the Makefile's targets need, saying first what will be downloaded.

Uses the standard library only, since nothing else is installed yet. In order: a virtual
environment; a pip that can plan without downloading; the plan; the announcement; the installation.

The one thing that can go wrong quietly is torch: on Linux x86-64 the public index answers
``torch==2.13.0`` with a build for CUDA and several GB of packages that come with it. The plan shows
that before it happens, so the announcement can say how to get the small build.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = Path("constraints/cpu.txt")
OLDEST_PYTHON = (3, 11)

# The first pip whose dry run does not download the wheels it plans to install (pypa/pip#13482).
PLANNING_PIP = (25, 3)

CUDA_PREFIXES = ("nvidia-", "triton", "cuda-")
CUDA_MEGABYTES = 3000
CPU_INDEX = "https://download.pytorch.org/whl/cpu"

# Sizes of the wheels that matter, in MB, as of the versions in constraints/cpu.txt.
MEGABYTES = {
    "torch": 192,
    "scipy": 35,
    "numpy": 17,
    "mypy": 15,
    "ruff": 11,
    "matplotlib": 9,
    "pillow": 7,
    "sympy": 6,
    "fonttools": 5,
    "networkx": 2,
}
OTHER_MEGABYTES = 0.4

CUDA_NOTICE = """\
pip would take the CUDA build of torch here: {count} packages for NVIDIA GPUs come with it, and the
download is several GB. The CPU build is enough for everything in this package.

PyTorch's installation page (https://pytorch.org/get-started/locally/) says: "To install PyTorch via
pip, and do not have a CUDA-capable or ROCm-capable system or do not require CUDA/ROCm (i.e. GPU
support), in the above selector, choose OS: Linux, Package: Pip, Language: Python and Compute
Platform: CPU. Then, run the command that is presented to you." For this environment that is

    {command}

Run it and then the same `make` again; the rest is installed around it.
Going on with the CUDA build now; Ctrl-C stops."""


@dataclass(frozen=True)
class Plan:
    """What pip would install.

    Args:
        packages: names and versions, without this package itself.
        megabytes: about how much that is to download.
        cuda: the names among them that only a CUDA build of torch needs.
    """

    packages: tuple[tuple[str, str], ...]
    megabytes: int
    cuda: tuple[str, ...]


def decide(report: Mapping[str, list[dict[str, dict[str, str]]]], own_name: str) -> Plan:
    """Read pip's installation report (``pip install --dry-run --report``)."""
    packages = []
    for item in report["install"]:
        name = item["metadata"]["name"].lower().replace("_", "-")
        if name != own_name:
            packages.append((name, item["metadata"]["version"]))
    packages.sort()
    cuda = tuple(name for name, _ in packages if name.startswith(CUDA_PREFIXES))
    size = sum(MEGABYTES.get(name, OTHER_MEGABYTES) for name, _ in packages)
    return Plan(tuple(packages), round(CUDA_MEGABYTES if cuda else size), cuda)


def announcement(plan: Plan, python: Path) -> str:
    """Say what is about to be downloaded, and how to avoid the CUDA packages."""
    if not plan.packages:
        return "Every dependency is there already; nothing to download."
    lines = [
        f"To download: {len(plan.packages)} packages, about {plan.megabytes} MB "
        "(less what pip already has on this machine)."
    ]
    listed = ", ".join(f"{name} {version}" for name, version in plan.packages)
    lines += ["", *textwrap.wrap(listed, 100), ""]
    if plan.cuda:
        pinned = (ROOT / CONSTRAINTS).read_text().splitlines()[0]
        command = f"{python} -m pip install {pinned} --index-url {CPU_INDEX}"
        lines.append(CUDA_NOTICE.format(count=len(plan.cuda), command=command))
    return "\n".join(lines)


def pip(python: Path, *arguments: str) -> None:
    """Run pip of an environment in the project's root, and stop where it stops."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(f"pip failed (exit status {done.returncode}); its message is above")


def make_environment(venv: Path) -> Path:
    """Return the Python of the virtual environment at ``venv``, making it where it is absent."""
    folder = "Scripts" if os.name == "nt" else "bin"
    python = venv / folder / "python"
    if python.exists():
        return python
    print(f"Making a virtual environment in {venv} (Python {sys.version.split()[0]})")
    done = subprocess.run([sys.executable, "-m", "venv", str(venv)], check=False)
    if done.returncode:
        sys.exit(
            f"{sys.executable} could not make a virtual environment; "
            "on Debian and Ubuntu it needs the package python3-venv"
        )
    return python


def update_pip(python: Path) -> None:
    """Update a pip that would download everything just to plan."""
    query = [str(python), "-c", "import pip; print(pip.__version__)"]
    found = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    if tuple(int(part) for part in found.split(".")[:2]) >= PLANNING_PIP:
        return
    print(f"Updating pip {found} in it (2 MB), so that it can say what it will download")
    pip(python, "install", "--quiet", "--upgrade", f"pip>={PLANNING_PIP[0]}.{PLANNING_PIP[1]}")


def plan_installation(python: Path, target: list[str]) -> Plan:
    """Ask pip what it would install."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        pip(python, "install", "--quiet", "--dry-run", "--report", str(file), *target)
        return decide(json.loads(file.read_text()), own_name="beliefspace")


def main(arguments: list[str] | None = None) -> None:
    """Set the environment up."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--venv", type=Path, default=Path(".venv"), help="where (default: .venv)")
    parser.add_argument("--extra", default="all", help="the extra to install (default: all)")
    options = parser.parse_args(arguments)
    if sys.version_info < OLDEST_PYTHON:
        needed = ".".join(str(part) for part in OLDEST_PYTHON)
        sys.exit(
            f"this needs Python {needed} or newer; {sys.executable} is {sys.version.split()[0]}"
        )

    # Not resolve(): the environment's python is a link to the one that must not be used.
    python = make_environment((ROOT / options.venv).absolute())
    target = ["-c", str(CONSTRAINTS), "-e", f".[{options.extra}]"]
    update_pip(python)
    print("Asking pip what there is to install (half a minute)", flush=True)
    plan = plan_installation(python, target)
    print(announcement(plan, python), flush=True)
    if plan.cuda and sys.stdin.isatty():
        time.sleep(10)
    pip(python, "install", "--quiet", *target)
    print("The environment is ready.", flush=True)


if __name__ == "__main__":
    main()
