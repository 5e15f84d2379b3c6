"""Units in processes of their own: what runs when, what fails how, what a stop leaves behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from beliefspace.core.errors import Interrupted, InvalidInput, UnknownName
from beliefspace.core.registry import resolve
from beliefspace.runs import engines
from beliefspace.runs.engines import Local, UnitFailed
from beliefspace.runs.units import Unit

WORK = "tests.runs.work"
ROOT = Path(__file__).parents[2]
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def unit(directory: Path, name: str, function: str, **config: object) -> Unit:
    config = {"log": str(directory / "log"), **config}
    return Unit(name, f"{WORK}:{function}", config, directory / name)


def log(directory: Path) -> list[str]:
    return (directory / "log").read_text().splitlines()


def nothing_is_left() -> bool:
    return not multiprocessing.active_children()


def start(program: list[str | Path], **options: object) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, *program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        process_group=0,
        **options,
    )


def counting(directory: Path) -> subprocess.Popen[str]:
    """Start the counting program and wait until its units are waiting."""
    program = start([ROOT / "tests/runs/counting.py", directory])
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    return program


def test_one_worker_takes_units_in_order_one_at_a_time_each_in_a_process_of_its_own(tmp_path):
    names = ["c", "a", "b"]
    Local(workers=1).run([unit(tmp_path, name, "write") for name in names])
    assert log(tmp_path) == [f"{what} {name}" for name in names for what in ("start", "end")]
    ids = {int((tmp_path / name / "pid").read_text()) for name in names}
    assert len(ids | {os.getpid()}) == 4
    assert nothing_is_left()


def test_as_many_units_run_at_once_as_cores_over_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    others = {"a": "b", "b": "a", "c": "d", "d": "c"}
    units = [unit(tmp_path, name, "meet", other=other) for name, other in others.items()]
    Local(threads=2).run(units)
    running, most = set(), 0
    for line in log(tmp_path):
        what, name = line.split()
        running = running | {name} if what == "start" else running - {name}
        most = max(most, len(running))
    assert most == 2
    assert sorted(log(tmp_path)) == sorted(
        f"{w} {name}" for name in others for w in ("start", "end")
    )


def test_processes_are_given_their_number_of_threads_and_the_parent_keeps_its_own(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = {name: os.environ.get(name) for name in VARIABLES}
    Local(threads=3).run([unit(tmp_path, "a", "write", variables=VARIABLES)])
    assert (tmp_path / "a" / "threads").read_text() == "3 3 3"
    assert {name: os.environ.get(name) for name in VARIABLES} == before
    with pytest.raises(UnitFailed):
        Local(threads=3).run([unit(tmp_path, "b", "crash", zero=0)])
    assert {name: os.environ.get(name) for name in VARIABLES} == before


def test_processes_keep_large_blocks_of_memory_unless_the_user_says_otherwise(
    tmp_path, monkeypatch
):
    names = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MALLOC_TOP_PAD_", "123")
    Local().run([unit(tmp_path, "a", "write", variables=names)])
    assert (tmp_path / "a" / "threads").read_text() == "4000000000 4000000000 123"
    assert [os.environ.get(name) for name in names] == [None, None, "123"]


def test_what_units_report_arrives_in_order_under_their_names(tmp_path):
    seen = []
    units = [unit(tmp_path, name, "tell") for name in ("a", "b")]
    Local(workers=2).run(units, lambda name, report: seen.append((name, dict(report))))
    told = [{"number": 0}, {"number": 1}, {"number": 2}, {"text": "x" * 200_000}]
    for name in ("a", "b"):
        assert [report for who, report in seen if who == name] == told


def test_a_failing_unit_is_told_clearly_after_the_others_have_ended(tmp_path):
    kinds = {"first": "write", "wrong": "refuse", "broken": "crash", "last": "write"}
    units = [unit(tmp_path, name, kind, zero=0) for name, kind in kinds.items()]
    with pytest.raises(UnitFailed) as caught:
        Local(workers=1).run(units)
    assert str(caught.value) == "wrong: one clear line (1 more failed)"
    assert caught.value.exit_status == InvalidInput.exit_status == 2
    assert caught.value.__notes__ == ["broken: ZeroDivisionError: division by zero"]
    assert log(tmp_path) == ["start first", "end first", "start last", "end last"]


def test_an_unexpected_error_brings_its_traceback_as_a_note(tmp_path):
    with pytest.raises(UnitFailed) as caught:
        Local().run([unit(tmp_path, "broken", "crash", zero=0)])
    assert str(caught.value) == "broken: ZeroDivisionError: division by zero"
    assert caught.value.exit_status == 1
    assert 'return 1 / config["zero"]' in caught.value.__notes__[0]


@pytest.mark.parametrize(
    "function",
    [f"{WORK}:no_such", "tests.runs.no_such:write", "tests.runs.work", ":write", ""],
)
def test_an_unknown_function_is_named(tmp_path, function):
    with pytest.raises(InvalidInput, match=f"no function '{function}'"):
        Unit("a", function, {}, tmp_path / "a").work()


def test_an_unknown_function_fails_its_unit_alone(tmp_path):
    with pytest.raises(
        UnitFailed, match=r"^lost: no function 'tests\.runs\.work:no_such'"
    ) as caught:
        Local(1).run([unit(tmp_path, "lost", "no_such"), unit(tmp_path, "found", "write")])
    assert caught.value.exit_status == 2
    assert (tmp_path / "found" / "pid").exists()


@pytest.mark.parametrize(
    ("second", "place"), [("a", "b"), ("b", "a"), ("b", "x/../a")], ids=["name", "place", "dots"]
)
def test_two_units_of_one_name_or_place_are_refused_before_anything_runs(tmp_path, second, place):
    one = unit(tmp_path, "a", "write")
    other = Unit(second, one.function, one.config, tmp_path / place)
    with pytest.raises(InvalidInput, match=f"different names and directories; got a, {second}"):
        Local().run([one, other])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("settings", [{"workers": 0}, {"workers": -1}, {"threads": 0}])
def test_an_engine_has_a_worker_and_a_thread(settings):
    with pytest.raises(InvalidInput, match="1 worker and 1 thread or more"):
        Local(**settings)


def test_no_units_are_no_work():
    Local().run([])


@pytest.mark.parametrize(
    ("function", "end"), [("kill_itself", "was killed by SIGKILL"), ("leave", "exited with 3")]
)
def test_a_process_that_dies_without_a_word_fails_its_unit_alone(tmp_path, function, end):
    with pytest.raises(UnitFailed) as caught:
        Local(1).run([unit(tmp_path, "a", function), unit(tmp_path, "b", "write")])
    assert str(caught.value) == f"a: its process {end}"
    assert caught.value.exit_status == 1
    assert log(tmp_path) == ["start b", "end b"]


def test_ctrl_c_stops_units_so_that_the_same_command_goes_on(tmp_path):
    program = counting(tmp_path)
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate()
    assert program.returncode == Interrupted.exit_status == 130
    assert errors == "stopped; what was saved is kept, and the same command goes on\n"
    for name in ("one", "two"):
        assert (tmp_path / name / "kept").read_text() == "3"
        # The terminal's own signal did not reach them, and they were told once.
        assert (tmp_path / name / "received").read_text() == "SIGTERM"
    assert not (tmp_path / "late").exists()

    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "kept").write_text("0")
    again = start([ROOT / "tests/runs/counting.py", tmp_path])
    _, errors = again.communicate()
    assert (again.returncode, errors) == (0, "")
    for name in ("one", "two", "late"):
        assert (tmp_path / name / "done").read_text() == "10"


def test_units_of_a_killed_parent_keep_what_they_did_and_end(tmp_path):
    program = counting(tmp_path)
    program.kill()
    # Every process holds the other end of this pipe: it is closed when the last one has ended.
    _, errors = program.communicate()
    assert program.returncode == -signal.SIGKILL
    assert "Error" not in errors
    for name in ("one", "two"):
        assert (tmp_path / name / "kept").read_text() == "3"
        assert (tmp_path / name / "received").read_text() == "SIGTERM"


def stop(name: str, report: object) -> None:
    if report == {"ready": True}:
        os.kill(os.getpid(), signal.SIGINT)


def test_after_a_stop_signals_are_handled_as_before(tmp_path):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    units = [unit(tmp_path, "a", "count"), unit(tmp_path, "b", "write")]
    with pytest.raises(Interrupted, match="the same command goes on"):
        Local(1).run(units, stop)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert not (tmp_path / "b").exists()
    assert nothing_is_left()


def test_after_a_stop_nothing_is_started_where_something_ended(tmp_path, monkeypatch):
    started, ready = [], set()

    class Noted(engines._Worker):
        def __init__(self, unit: Unit) -> None:
            started.append(unit.name)
            super().__init__(unit)

    def stop_both(name: str, report: object) -> None:
        if report == {"ready": True}:
            ready.add(name)
            if len(ready) == 2:
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(engines, "_Worker", Noted)
    kinds = {"slow": "count", "quick": "wait", "late": "write"}
    with pytest.raises(Interrupted):
        Local(2).run([unit(tmp_path, name, kind) for name, kind in kinds.items()], stop_both)
    assert started == ["slow", "quick"]


def test_a_second_ctrl_c_does_not_wait_for_units(tmp_path):
    def stop_twice(name: str, report: object) -> None:
        if report == {"ready": True}:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        Local(1).run([unit(tmp_path, "a", "count")], stop_twice)
    assert nothing_is_left()
    assert not (tmp_path / "a" / "done").exists()


def test_a_unit_that_cannot_keep_its_work_when_stopped_is_a_failure(tmp_path):
    with pytest.raises(UnitFailed, match=r"^a: the disk is full$"):
        Local(1).run([unit(tmp_path, "a", "count", full=True)], stop)


def test_an_error_of_the_observer_leaves_no_process_behind(tmp_path):
    def observe(name: str, report: object) -> None:
        if report == {"ready": True}:
            raise BufferError("mine")

    with pytest.raises(BufferError, match="mine"):
        Local(2).run([unit(tmp_path, name, "count") for name in ("a", "b")], observe)
    assert nothing_is_left()
    assert (tmp_path / "a" / "kept").exists() or (tmp_path / "b" / "kept").exists()


def test_units_run_from_another_thread_too(tmp_path):
    thread = threading.Thread(target=lambda: Local().run([unit(tmp_path, "a", "write")]))
    thread.start()
    thread.join()
    assert log(tmp_path) == ["start a", "end a"]


PLUGIN = """
from dataclasses import dataclass
from beliefspace.core.registry import register

@register("optimizers", "{name}")
@dataclass(frozen=True)
class Plugin:
    pass
"""


def test_a_unit_imports_the_files_and_modules_that_it_needs(tmp_path, monkeypatch):
    (tmp_path / "by-file.py").write_text(PLUGIN.format(name="by-file"))
    (tmp_path / "by_module.py").write_text(PLUGIN.format(name="by-module"))
    monkeypatch.syspath_prepend(tmp_path)
    needs = {"by-file": str(tmp_path / "by-file.py"), "by-module": "by_module"}
    seen = {}
    units = [
        Unit(name, f"{WORK}:look_up", {"name": name}, tmp_path / name, (need,))
        for name, need in needs.items()
    ]
    Local(1).run(units, lambda name, report: seen.update({name: report["found"]}))
    assert seen == {"by-file": "Plugin", "by-module": "Plugin"}
    with pytest.raises(UnknownName):
        resolve("optimizers", "by-file")


SCRIPT = """
import sys
from pathlib import Path
from beliefspace.runs.engines import Local
from beliefspace.runs.units import Unit

print("running")
def go(function, needs):
    config = {"log": sys.argv[1], "name": "by-script"}
    unit = Unit("a", "tests.runs.work:" + function, config, Path(sys.argv[2]), needs)
    Local().run([unit], lambda name, report: print(report["found"]))
"""


def run_script(directory: Path, text: str) -> tuple[int, str, str]:
    script = directory / "script.py"
    script.write_text(text)
    program = start([script, directory / "log", directory / "a"])
    output, errors = program.communicate()
    return program.returncode, output, errors


def test_a_script_without_a_guard_is_run_once(tmp_path):
    done = run_script(tmp_path, SCRIPT + 'go("write", ())')
    assert done == (0, "running\n", "")
    assert log(tmp_path) == ["start a", "end a"]


def test_a_unit_that_needs_the_script_gets_it(tmp_path):
    guarded = 'if __name__ == "__main__":\n    go("look_up", ("__main__",))'
    done = run_script(tmp_path, SCRIPT + PLUGIN.format(name="by-script") + guarded)
    assert done == (0, "running\nrunning\nPlugin\n", "")


def test_ctrl_c_while_a_process_is_starting_is_the_parent_s_to_act_on(tmp_path):
    """The script, which the new process runs first, stands for the imports."""
    guarded = (
        'if __name__ == "__main__":\n    go("write", ("__main__",))\n'
        "else:\n    import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    )
    done = run_script(tmp_path, SCRIPT + guarded)
    assert done == (0, "running\nrunning\n", "")
    assert log(tmp_path) == ["start a", "end a"]
