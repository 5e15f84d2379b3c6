"""The facts are read from metadata, without importing torch, and each trap shows when it should."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata

import pytest

from beliefspace.cli import doctor
from beliefspace.cli.doctor import Facts, Package, find_traps, read_build, read_requirements, render

CPU_VERSION_FILE = """
from typing import Optional
__version__ = '2.13.0+cpu'
debug = False
cuda: Optional[str] = None
hip: Optional[str] = None
"""


def clean_facts(**changes: object) -> Facts:
    """Return facts of a machine without a trap: a CPU build, one thread, raised thresholds."""
    facts = Facts(
        version="0.1.0",
        python="CPython 3.11.7",
        platform="Linux 6.1 x86_64",
        libc="glibc 2.36",
        processor="A processor",
        cores=4,
        nvidia_driver=False,
        environment={"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "4000000000"},
        packages=[],
        extras={},
        torch={"version": "2.13.0+cpu", "build": "cpu"},
        blas=[],
        traps=[],
    )
    return {**facts, **changes}


def names_of_traps(**changes: object) -> list[str]:
    return [trap["name"] for trap in find_traps(clean_facts(**changes))]


def test_a_clean_machine_has_no_trap():
    assert names_of_traps() == []
    assert "No known trap." in render(clean_facts())


MALLOC = {"MALLOC_MMAP_THRESHOLD_": "4000000000"}
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"environment": {**MALLOC, **ONE_THREAD, "OPENBLAS_CORETYPE": "Haswell"}}, "openblas"),
        ({"torch": {"version": "2.13.0", "build": "cuda 13.0"}}, "gpu-build-without-gpu"),
        ({"nvidia_driver": True}, "cpu-build-with-gpu"),
        ({"environment": MALLOC}, "threads-times-workers"),
        ({"environment": {**MALLOC, "OMP_NUM_THREADS": "4"}}, "threads-times-workers"),
        ({"environment": {**MALLOC, "OMP_NUM_THREADS": "many"}}, "threads-times-workers"),
        ({"environment": ONE_THREAD}, "malloc-thresholds"),
    ],
)
def test_each_trap_shows_alone(changes, expected):
    (name,) = names_of_traps(**changes)
    assert name.startswith(expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"environment": {}, "torch": None},
        {"environment": MALLOC, "cores": 1},
        {"environment": {**ONE_THREAD, "GLIBC_TUNABLES": "glibc.malloc.top_pad=1"}},
        {"environment": ONE_THREAD, "libc": ""},
        {"torch": {"version": "2.13.0", "build": "cuda 13.0"}, "nvidia_driver": True},
    ],
)
def test_no_trap_where_its_condition_is_missing(changes):
    assert names_of_traps(**changes) == []


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (("", ""), "cpu"),
        (("cuda: Optional[str] = None", "cuda: Optional[str] = '13.0'"), "cuda 13.0"),
        (("cuda: Optional[str] = None", "cuda = '12.8'"), "cuda 12.8"),
        (("hip: Optional[str] = None", "hip: Optional[str] = '7.1'"), "rocm 7.1"),
    ],
)
def test_the_build_is_read_from_the_version_file(edit, expected):
    assert read_build(CPU_VERSION_FILE.replace(*edit)) == expected


def test_requirements_are_read_with_their_extras():
    packages = read_requirements(
        [
            "numpy>=2.0",
            "no-such-package-anywhere>=2,<3; extra == 'tunnel'",
            'jinja2>=3.1.4 ; python_version >= "3.11" and extra == "report"',
            "beliefspace[tunnel,report]; extra == 'all'",
            "pytest>=8.3; extra == 'test'",
        ]
    )
    assert [(p["name"], p["required"], p["extra"]) for p in packages] == [
        ("numpy", ">=2.0", None),
        ("no-such-package-anywhere", ">=2,<3", "tunnel"),
        ("jinja2", ">=3.1.4", "report"),
    ]
    assert packages[0]["installed"] == metadata.version("numpy")
    assert packages[1]["installed"] is None
    assert doctor.still_added(packages)["tunnel"] == ["no-such-package-anywhere"]


def test_the_installed_package_is_described():
    facts = doctor.doctor()
    assert facts["version"] == metadata.version("beliefspace")
    always = {package["name"] for package in facts["packages"] if package["extra"] is None}
    assert {"numpy", "scipy", "safetensors", "rich", "tyro"} <= always
    assert set(facts["extras"]) >= {"tunnel", "plots", "report", "sweeps"}
    assert facts["extras"]["tunnel"] == []
    assert not {"all", "test", "checks", "dev"} & set(facts["extras"])
    assert facts["cores"] >= 1
    assert facts["blas"] is None or facts["blas"]
    json.dumps(facts, allow_nan=False)


def test_the_text_fits_100_columns():
    long = Package(
        name="a" * 60, required=">=1.2.3,<99.99.99,!=5.5.5", extra="b" * 40, installed=None
    )
    facts = clean_facts(
        environment={"OPENBLAS_CORETYPE": "x" * 200, "OMP_NUM_THREADS": "2"},
        torch={"version": "2.13.0+cu130", "build": "cuda 13.0"},
        processor="P" * 150,
        packages=[long],
        extras={"tunnel": [f"package-{i}" for i in range(30)]},
    )
    facts["traps"] = find_traps(facts)
    text = render(facts)
    assert max(len(line) for line in text.splitlines()) <= 100
    for trap in facts["traps"]:
        assert trap["name"] in text
    # The public version, since the index with the CPU build has no other label of it.
    assert "torch==2.13.0 " in " ".join(text.split())
    assert "package-29" in text
    assert max(len(line) for line in render(doctor.doctor()).splitlines()) <= 100


def test_torch_is_not_imported():
    code = (
        "import sys; from beliefspace.cli.doctor import doctor, render; render(doctor()); "
        "sys.exit(' '.join({'torch', 'matplotlib', 'jinja2'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
