"""What this machine and this environment are, and which known traps they hold.

Nothing heavy is imported to find out: versions come from the installed packages' metadata, torch's
build from its version file, and only numpy (a core dependency) is loaded, to see its BLAS.
"""

from __future__ import annotations

import ast
import os
import platform
import re
import shutil
import textwrap
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TypedDict

NAME = "beliefspace"
WIDTH = 100

# What an extra that only collects others asks for is listed under those; the rest is for people who
# change the package.
UNLISTED_EXTRAS = frozenset({"all", "test", "checks", "dev"})

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
MALLOC_VARIABLES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
OTHER_VARIABLES = ("OPENBLAS_CORETYPE", "GLIBC_TUNABLES", "CUDA_VISIBLE_DEVICES")

CPU_TORCH = (
    "python -m pip install --force-reinstall --no-deps torch=={version} "
    "--index-url https://download.pytorch.org/whl/cpu"
)

_REQUIREMENT = re.compile(r"\s*([\w.-]+)\s*(?:\[([^\]]*)\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w.-]+)['\"]")


class Package(TypedDict):
    """A dependency: what is asked for, by which extra (None: always), and what is installed."""

    name: str
    required: str
    extra: str | None
    installed: str | None


class Torch(TypedDict):
    """The installed torch; ``build`` is "cpu", "cuda 13.0" or "rocm 7.1"."""

    version: str
    build: str


class Blas(TypedDict):
    """A linear-algebra library that numpy has loaded."""

    library: str
    version: str
    kernels: str
    threads: int


class Trap(TypedDict):
    """Something that is known to go wrong here, and what to do."""

    name: str
    seen: str
    remedy: str


class Facts(TypedDict):
    """All that :func:`doctor` finds; plain values, ready for JSON."""

    version: str | None
    python: str
    platform: str
    libc: str
    processor: str
    cores: int
    nvidia_driver: bool
    environment: dict[str, str | None]
    packages: list[Package]
    extras: dict[str, list[str]]
    torch: Torch | None
    blas: list[Blas] | None
    traps: list[Trap]


def doctor() -> Facts:
    """Collect the facts about this machine and environment.

    Returns:
        Plain values. ``extras`` maps each extra to the packages that it would still add; ``blas``
        is None where threadpoolctl is not installed.
    """
    names = (*THREAD_VARIABLES, *MALLOC_VARIABLES, *OTHER_VARIABLES)
    try:
        lines = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:
        lines = []
    packages = read_requirements(lines)
    facts = Facts(
        version=_installed(NAME),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=f"{platform.system()} {platform.release()} {platform.machine()}",
        libc=" ".join(platform.libc_ver()).strip(),
        processor=_processor(),
        cores=_usable_cores(),
        nvidia_driver=_has_nvidia_driver(),
        environment={name: os.environ.get(name) for name in names},
        packages=packages,
        extras=still_added(packages),
        torch=_torch(),
        blas=_blas(),
        traps=[],
    )
    facts["traps"] = find_traps(facts)
    return facts


def read_requirements(lines: Iterable[str]) -> list[Package]:
    """Read ``Requires-Dist`` lines, leaving out this package's mentions of its own extras."""
    packages: list[Package] = []
    for line in lines:
        match = _REQUIREMENT.fullmatch(line)
        if match is None or match[1] == NAME:
            continue
        extra = _EXTRA.search(match[4] or "")
        if extra and extra[1] in UNLISTED_EXTRAS:
            continue
        packages.append(
            Package(
                name=match[1],
                required=match[3].strip(),
                extra=extra[1] if extra else None,
                installed=_installed(match[1]),
            )
        )
    return packages


def still_added(packages: Iterable[Package]) -> dict[str, list[str]]:
    """Return, for each extra, the packages that are not installed yet."""
    extras: dict[str, list[str]] = {}
    for package in packages:
        if package["extra"] is not None:
            missing = extras.setdefault(package["extra"], [])
            if package["installed"] is None:
                missing.append(package["name"])
    return extras


def find_traps(facts: Facts) -> list[Trap]:
    """Return the known traps that the facts show."""
    traps: list[Trap] = []

    def trap(name: str, seen: str, remedy: str) -> None:
        traps.append(Trap(name=name, seen=seen, remedy=remedy))

    environment, torch, cores = facts["environment"], facts["torch"], facts["cores"]
    if kernels := environment.get("OPENBLAS_CORETYPE"):
        trap(
            "openblas-coretype",
            f"OPENBLAS_CORETYPE={kernels} makes OpenBLAS use the kernels of that processor, "
            "whatever this one is: often slower, and last digits can differ.",
            "Unset it, unless an old OpenBLAS fails on this processor without it.",
        )
    if torch and torch["build"] != "cpu" and not facts["nvidia_driver"]:
        trap(
            "gpu-build-without-gpu",
            f"torch {torch['version']} is a build for {torch['build']}, and no NVIDIA driver was "
            "found. It runs on the CPU all the same, but takes several GB of disk.",
            "The CPU build, after which the nvidia-* packages can be uninstalled: "
            + CPU_TORCH.format(version=torch["version"].split("+")[0]),
        )
    if torch and torch["build"] == "cpu" and facts["nvidia_driver"]:
        trap(
            "cpu-build-with-gpu",
            f"There is an NVIDIA driver, but torch {torch['version']} is the CPU build.",
            "To use the GPU, install a build for CUDA as https://pytorch.org/get-started/locally/ "
            "says, and install beliefspace without constraints/cpu.txt.",
        )
    if torch and cores > 1 and _threads(environment) != 1:
        trap(
            "threads-times-workers",
            f"Every process with torch uses {_threads(environment) or cores} threads here. "
            "A sweep divides the cores among its workers; processes that you start yourself, "
            "several at a time, do not, and slow one another down.",
            f"Set OMP_NUM_THREADS to cores / processes ({cores} / ...) for those.",
        )
    if torch and "glibc" in facts["libc"] and not _malloc_raised(environment):
        trap(
            "malloc-thresholds",
            "glibc gives large blocks back to the system each time they are freed. State-space "
            "models, which allocate tensors of tens of MB at every step, took 2.5 to 4 times as "
            "long as with raised thresholds; small transformers did not change.",
            "Start with MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=4000000000 "
            "MALLOC_TOP_PAD_=67108864 in the environment.",
        )
    return traps


def render(facts: Facts) -> str:
    """Write the facts as text of at most 100 columns."""
    lines = [
        f"beliefspace  {facts['version'] or 'run from its sources, not installed'}",
        f"Python       {facts['python']}",
        f"platform     {facts['platform']}" + (f", {facts['libc']}" if facts["libc"] else ""),
        f"processor    {facts['processor'] or 'unknown'}; {facts['cores']} cores usable; "
        f"NVIDIA driver: {'yes' if facts['nvidia_driver'] else 'no'}",
        f"torch        {_torch_line(facts['torch'])}",
        *_blas_lines(facts["blas"]),
        *_environment_lines(facts["environment"]),
        "",
        f"{'package':<16}{'installed':<16}{'asked for':<16}extra",
    ]
    for package in facts["packages"]:
        lines.append(
            f"{package['name']:<16}{package['installed'] or 'absent':<16}"
            f"{package['required'] or 'any':<16}{package['extra'] or ''}".rstrip()
        )
    lines.append("")
    for extra, missing in facts["extras"].items():
        state = f"would add {', '.join(missing)}" if missing else "complete"
        lines.append(f"beliefspace[{extra}]: {state}")
    lines += ["", "Known traps" if facts["traps"] else "No known trap."]
    for trap in facts["traps"]:
        lines.append(f"- {trap['name']}")
        lines += textwrap.wrap(trap["seen"], WIDTH - 2)
        lines += textwrap.wrap(trap["remedy"], WIDTH - 2)
    return "\n".join(_wrapped(lines))


def _wrapped(lines: Iterable[str]) -> list[str]:
    """Break what is still too long (a processor's name, a variable's value)."""
    wrapped: list[str] = []
    for line in lines:
        wrapped += textwrap.wrap(line, WIDTH, subsequent_indent=" " * 13) or [""]
    return wrapped


def _torch_line(torch: Torch | None) -> str:
    return f"{torch['version']}, build: {torch['build']}" if torch else "absent"


def _blas_lines(libraries: list[Blas] | None) -> list[str]:
    if libraries is None:
        return ["BLAS         unknown (threadpoolctl is absent)"]
    return [
        f"BLAS         {blas['library']} {blas['version']}, kernels {blas['kernels']}, "
        f"{blas['threads']} threads"
        for blas in libraries
    ]


def _environment_lines(environment: Mapping[str, str | None]) -> list[str]:
    given = [f"{name}={value}" for name, value in environment.items() if value is not None]
    return [f"environment  {line}" for line in given] or ["environment  no thread variable is set"]


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _usable_cores() -> int:
    """Count the cores that this process may use, which in a container are fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    try:
        listing = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.+)$", listing, re.MULTILINE)
    return found[1].strip() if found else platform.processor()


def _has_nvidia_driver() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def _torch() -> Torch | None:
    try:
        distribution = metadata.distribution("torch")
    except metadata.PackageNotFoundError:
        return None
    try:
        source = Path(str(distribution.locate_file("torch/version.py"))).read_text(encoding="utf-8")
    except OSError:
        return Torch(version=distribution.version, build="unknown")
    return Torch(version=distribution.version, build=read_build(source))


def read_build(version_file: str) -> str:
    """Read what a torch was built for from the text of its ``version.py``.

    Returns:
        "cpu", or the toolkit and its version: "cuda 13.0", "rocm 7.1".
    """
    constants: dict[str, object] = {}
    for node in ast.parse(version_file).body:
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=ast.Constant(value)):
                constants[name] = value
            case ast.AnnAssign(target=ast.Name(name), value=ast.Constant(value)):
                constants[name] = value
    for name, toolkit in (("cuda", "cuda"), ("hip", "rocm")):
        if constants.get(name):
            return f"{toolkit} {constants[name]}"
    return "cpu"


def _blas() -> list[Blas] | None:
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return None
    import numpy as np

    # A product makes sure that numpy's library is loaded before the loaded ones are listed.
    np.ones((2, 2)) @ np.ones((2, 2))
    return [
        Blas(
            library=str(entry["internal_api"]),
            version=str(entry["version"]),
            kernels=str(entry.get("architecture", "unknown")),
            threads=int(entry["num_threads"]),
        )
        for entry in threadpool_info()
        if entry["user_api"] == "blas"
    ]


def _threads(environment: Mapping[str, str | None]) -> int | None:
    value = environment.get("OMP_NUM_THREADS") or ""
    first = value.split(",")[0].strip()
    return int(first) if first.isdigit() else None


def _malloc_raised(environment: Mapping[str, str | None]) -> bool:
    tunables = environment.get("GLIBC_TUNABLES") or ""
    return "glibc.malloc" in tunables or any(environment.get(name) for name in MALLOC_VARIABLES)
