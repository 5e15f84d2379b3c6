"""The set-up script's decision: what pip would install, how much, and whether CUDA comes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def setup():
    specification = importlib.util.spec_from_file_location(
        "setup_tool", ROOT / "tools" / "setup.py"
    )
    module = importlib.util.module_from_spec(specification)
    sys.modules["setup_tool"] = module  # dataclasses look their module up there
    specification.loader.exec_module(module)
    yield module
    del sys.modules["setup_tool"]


def report(*packages: tuple[str, str]) -> dict[str, list[dict[str, dict[str, str]]]]:
    """Return what pip reports for these names and versions."""
    return {"install": [{"metadata": {"name": n, "version": v}} for n, v in packages]}


CPU = report(
    ("torch", "2.13.0+cpu"), ("numpy", "2.4.6"), ("beliefspace", "0.1.0"), ("tomli_w", "1.2")
)
CUDA = report(
    ("torch", "2.13.0"),
    ("nvidia-cublas", "13.1"),
    ("triton", "3.7.0"),
    ("cuda-toolkit", "13.0"),
    ("beliefspace", "0.1.0"),
)


def test_a_cpu_build_is_planned_by_size(setup):
    plan = setup.decide(CPU, own_name="beliefspace")
    assert plan.packages == (("numpy", "2.4.6"), ("tomli-w", "1.2"), ("torch", "2.13.0+cpu"))
    assert plan.cuda == ()
    assert plan.megabytes == 209  # 192 + 17 and a small one


def test_cuda_packages_are_seen(setup):
    plan = setup.decide(CUDA, own_name="beliefspace")
    assert plan.cuda == ("cuda-toolkit", "nvidia-cublas", "triton")
    assert plan.megabytes >= 2000


def test_nothing_to_install(setup):
    plan = setup.decide(report(("beliefspace", "0.1.0")), own_name="beliefspace")
    assert plan.packages == ()
    assert "nothing to download" in setup.announcement(plan, Path("python"))


def test_the_announcement_says_how_much_and_what(setup):
    text = setup.announcement(setup.decide(CPU, own_name="beliefspace"), Path("python"))
    assert "3 packages, about 209 MB" in text
    assert "torch 2.13.0+cpu" in text
    assert "CUDA" not in text


def test_the_announcement_says_how_to_get_the_cpu_build(setup):
    text = setup.announcement(setup.decide(CUDA, own_name="beliefspace"), Path("venv/bin/python"))
    first_line = (ROOT / "constraints" / "cpu.txt").read_text().splitlines()[0]
    assert (
        f"venv/bin/python -m pip install {first_line} "
        "--index-url https://download.pytorch.org/whl/cpu" in text
    )
    assert "3 packages for NVIDIA GPUs" in text
    assert "several GB" in text
    assert "Going on" in text


def test_an_old_python_is_refused_by_name(setup, monkeypatch):
    monkeypatch.setattr(setup.sys, "version_info", (3, 10, 4))
    with pytest.raises(SystemExit, match=r"needs Python 3\.11 or newer"):
        setup.main(["--venv", "never-made"])
    assert not (ROOT / "never-made").exists()
