"""A run survives whatever happens to the process, the disk or the files, or says what is wrong."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Never

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beliefspace.core import files
from beliefspace.core.environment import environment
from beliefspace.core.errors import (
    BeliefspaceError,
    CorruptFile,
    InvalidInput,
    NoSpace,
    RunBusy,
    RunExists,
)
from beliefspace.core.store import Checkpoint, Run, write_atomic

TENSORS = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "count": np.array(7, dtype=np.int64),
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "every_other": np.arange(6.0)[::2],
    "empty": np.zeros((0, 4)),
    "flags": np.array([True, False]),
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Make a run."""
    return Run.create(tmp_path / "hmm", "train", "seed = 0\n", {"python": "3.11"})


def everything(directory: Path) -> dict[str, bytes]:
    """Return the content of every file below a directory."""
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }


def same(found: Checkpoint, tensors: dict[str, np.ndarray]) -> bool:
    """Tell whether a checkpoint holds exactly these arrays."""
    return list(found.tensors) == sorted(tensors) and all(
        found.tensors[name].dtype == value.dtype
        and found.tensors[name].shape == value.shape
        and np.array_equal(found.tensors[name], value)
        for name, value in tensors.items()
    )


def python(program: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
    """Start another process of the same Python."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        **options,
    )


# Making and opening a run.


def test_a_new_run_has_all_its_files_and_opens(run: Run) -> None:
    assert set(everything(run.path)) == {"run.json", "config.toml", "environment.json"}
    opened = Run.open(run.path)
    assert opened == run
    assert (opened.kind, opened.status) == ("train", "running")
    assert opened.config_toml() == "seed = 0\n"
    assert opened.environment() == {"python": "3.11"}
    header = json.loads((run.path / "run.json").read_text())
    assert header["schema"] == 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", header["created"])


def test_an_empty_directory_and_missing_parents_are_fine(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    Run.create(tmp_path / "empty", "train", "", {})
    Run.create(tmp_path / "new" / "parents" / "run", "train", "", {})
    assert Run.open(tmp_path / "new" / "parents" / "run").kind == "train"


def test_a_run_is_never_overwritten(run: Run) -> None:
    before = everything(run.path)
    with pytest.raises(RunExists, match=r"holds a run already.*beliefspace resume"):
        Run.create(run.path, "train", "seed = 1\n", {})
    assert everything(run.path.parent) == {f"hmm/{name}": data for name, data in before.items()}


def test_other_people_s_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("a")
    (tmp_path / "file").write_text("b")
    with pytest.raises(RunExists, match="not empty"):
        Run.create(tmp_path / "notes", "train", "", {})
    with pytest.raises(RunExists, match="is a file"):
        Run.create(tmp_path / "file", "train", "", {})
    with pytest.raises(InvalidInput, match="cannot make a run"):
        Run.create(tmp_path / "file" / "run", "train", "", {})
    assert everything(tmp_path) == {"notes/a.txt": b"a", "file": b"b"}


def test_of_two_creators_one_gets_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, rename = tmp_path / "run", Path.rename

    def overtaken(self: Path, place: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        Run.create(target, "train", "first = 1\n", {})
        return rename(self, place)

    monkeypatch.setattr(Path, "rename", overtaken)
    with pytest.raises(RunExists):
        Run.create(target, "train", "second = 2\n", {})
    assert Run.open(target).config_toml() == "first = 1\n"
    assert os.listdir(tmp_path) == ["run"]


def test_a_missing_run_gives_its_nearest_siblings(run: Run) -> None:
    with pytest.raises(InvalidInput, match=r"hnm does not exist; nearest in .*: hmm$"):
        Run.open(run.path.parent / "hnm")
    (run.path.parent / "hmms").mkdir()
    with pytest.raises(InvalidInput, match=r"hmms has no run.json, so it is not a run; .*: hmm$"):
        Run.open(run.path.parent / "hmms")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: header | {"schema": 2}, r"schema version 2; .* reads 1$"),
        (lambda header: header | {"schema": True}, r"schema version True; .* reads 1$"),
        (lambda header: {"kind": "train"}, r"schema version None; .* reads 1$"),
        (lambda header: header | {"status": "lost"}, "status 'lost'"),
        (lambda header: header | {"kind": 3}, "kind 3"),
        (lambda header: [header], "expected a JSON object"),
    ],
)
def test_a_header_that_is_not_ours_is_corrupt(run: Run, change: Callable, message: str) -> None:
    file = run.path / "run.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    with pytest.raises(CorruptFile, match=f"run.json.*{message}"):
        Run.open(run.path)


def test_a_cut_off_header_is_corrupt(run: Run) -> None:
    file = run.path / "run.json"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(CorruptFile, match=r"run.json is not valid JSON"):
        Run.open(run.path)
    (run.path / "environment.json").unlink()
    with pytest.raises(CorruptFile, match=r"environment.json is missing"):
        run.environment()
    (run.path / "config.toml").write_bytes(b"\xff")
    with pytest.raises(CorruptFile, match=r"config.toml cannot be read"):
        run.config_toml()


def test_the_status_is_recorded_and_checked(run: Run) -> None:
    header = run.header()
    run.set_status("finished")
    assert Run.open(run.path).header() == header | {"status": "finished"}
    with pytest.raises(InvalidInput, match="expected one of running, interrupted"):
        run.set_status("done")
    assert run.status == "finished"


# The lock.

HOLD = """
import sys
from beliefspace.core.store import Run
with Run.open(sys.argv[1]).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_lock_names_the_process_that_holds_it_and_dies_with_it(run: Run) -> None:
    with python(HOLD, run.path, stdin=subprocess.PIPE) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RunBusy, match=rf"in use by process {other.pid} on "), run.locked():
            pass
        other.send_signal(signal.SIGKILL)
        assert other.wait(30) == -signal.SIGKILL
        with run.locked() as held:
            assert held is run


def test_the_lock_is_let_go_and_holds_within_a_process_too(run: Run) -> Never:
    with run.locked():
        with pytest.raises(RunBusy, match=f"process {os.getpid()} "), run.locked():
            pass
        assert f"{os.getpid()} on " in (run.path / "lock").read_text()
    with pytest.raises(ZeroDivisionError), run.locked():
        raise ZeroDivisionError
    with run.locked():
        pass
    assert (run.path / "lock").read_text() == ""


def test_a_forked_child_does_not_keep_the_lock(run: Run) -> None:
    reading, writing = os.pipe()
    with run.locked():
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
    try:
        with run.locked():
            pass
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


# Metrics.


def test_metrics_come_back_in_order_and_exactly(run: Run) -> None:
    assert run.metrics() == []
    run.append_metrics({"step": 1, "kl_bits": 0.1 + 0.2})
    run.append_metrics({"step": 2, "kl_bits": np.float64(np.inf), "name": "a\r\n\u2028b"})
    assert run.metrics() == [
        {"step": 1, "kl_bits": 0.1 + 0.2},
        {"step": 2, "kl_bits": "inf", "name": "a\r\n\u2028b"},
    ]


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_a_metrics_file_cut_anywhere_keeps_its_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    run = Run.create(tmp_path_factory.mktemp("cut") / "run", "train", "", {})
    rows = [{"step": step, "text": "x" * data.draw(st.integers(0, 5000))} for step in range(3)]
    for row in rows:
        run.append_metrics(row)
    file = run.path / "metrics.jsonl"
    content = file.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    file.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    assert run.metrics() == rows[:whole]
    run.append_metrics({"step": 9})
    assert run.metrics() == [*rows[:whole], {"step": 9}]


@pytest.mark.parametrize("line", [b'{"step": 1', b"[1]", b"\xff"])
def test_a_whole_line_that_is_wrong_is_corrupt(run: Run, line: bytes) -> None:
    (run.path / "metrics.jsonl").write_bytes(b'{"step": 0}\n' + line + b"\n")
    with pytest.raises(CorruptFile, match=r"metrics.jsonl, line 2"):
        run.metrics()


def test_metrics_are_truncated_after_a_step(run: Run) -> None:
    run.truncate_metrics(0)
    assert not (run.path / "metrics.jsonl").exists()
    for step in (1, 2, 3):
        run.append_metrics({"step": step})
        run.append_metrics({"note": step})
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": ')
    run.truncate_metrics(2)
    assert run.metrics() == [{"step": 1}, {"note": 1}, {"step": 2}, {"note": 2}, {"note": 3}]


# Checkpoints.


def test_a_checkpoint_comes_back_exactly(run: Run) -> None:
    meta = {"loss": 0.1 + 0.2, "big": 2**70, "nested": {"rows": (1, 2)}, "none": None}
    run.save_checkpoint(12, TENSORS, meta)
    found = run.load_checkpoint()
    assert same(found, TENSORS)
    assert found.step == 12
    assert found.meta == meta | {"nested": {"rows": [1, 2]}}
    assert found.skipped == ()
    assert sorted(os.listdir(run.path / "checkpoints")) == [
        "step-00000012.json",
        "step-00000012.safetensors",
    ]


def test_the_newest_are_kept_and_any_can_be_asked_for(run: Run) -> None:
    for step in (1, 2, 100_000_000, 3):
        run.save_checkpoint(step, {"x": np.array([step])}, {}, keep=2)
    assert run.checkpoints() == [2, 3, 100_000_000]
    assert run.load_checkpoint().step == 100_000_000
    assert run.load_checkpoint(2).tensors["x"].tolist() == [2]
    run.save_checkpoint(100_000_001, {}, {}, keep=1)
    assert run.checkpoints() == [100_000_001]
    assert len(os.listdir(run.path / "checkpoints")) == 2
    with pytest.raises(InvalidInput, match="no checkpoint of step 5; there are those of 100000001"):
        run.load_checkpoint(5)


def test_a_foreign_byte_order_keeps_its_values(run: Run) -> None:
    run.save_checkpoint(1, {"x": np.array([1.0, -2.0], dtype=">f8")}, {})
    assert run.load_checkpoint().tensors["x"].tolist() == [1.0, -2.0]


def test_a_checkpoint_of_the_same_step_is_replaced(run: Run) -> None:
    run.save_checkpoint(1, {"x": np.zeros(3)}, {"try": 1})
    run.save_checkpoint(1, {"x": np.ones(3)}, {"try": 2})
    found = run.load_checkpoint(1)
    assert found.meta == {"try": 2}
    assert found.tensors["x"].tolist() == [1, 1, 1]


def test_arguments_that_make_no_checkpoint(run: Run) -> None:
    for step, keep in ((-1, 2), (1, 0)):
        with pytest.raises(InvalidInput, match="expected step >= 0 and keep >= 1"):
            run.save_checkpoint(step, {}, {}, keep=keep)
    with pytest.raises(InvalidInput, match="step 1 cannot be saved"):
        run.save_checkpoint(1, {"x": np.array(["text"])}, {})
    with pytest.raises(InvalidInput):
        run.save_checkpoint(1, {}, {"x": object()})
    with pytest.raises(InvalidInput, match=r"has no checkpoint$"):
        run.load_checkpoint()
    assert os.listdir(run.path / "checkpoints") == []


def damaged(content: bytes) -> Iterator[bytes]:
    """Yield the content with each byte changed in turn, and cut at each length."""
    for position in range(len(content)):
        yield content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]
        yield content[:position]


@pytest.mark.parametrize("ending", ["safetensors", "json"])
def test_a_checkpoint_with_any_byte_changed_or_missing_is_refused(run: Run, ending: str) -> None:
    run.save_checkpoint(1, {"x": np.array([1.5, 2.5])}, {"loss": 0.25})
    file = run.path / "checkpoints" / f"step-00000001.{ending}"
    content = file.read_bytes()
    refused, harmless = 0, 0
    for changed in damaged(content):
        file.write_bytes(changed)
        try:
            found = run.load_checkpoint(1)
        except CorruptFile as error:
            refused += file.name in str(error)
        else:
            # Only the white space around JSON may differ without a change of content.
            assert ending == "json"
            assert json.loads(changed) == json.loads(content)
            assert found.meta == {"loss": 0.25}
            harmless += 1
    assert refused + harmless == 2 * len(content)
    file.write_bytes(content)
    assert run.load_checkpoint(1).tensors["x"].tolist() == [1.5, 2.5]


def test_the_newest_intact_checkpoint_is_found_and_the_torn_ones_named(run: Run) -> None:
    for step in (1, 2, 3):
        run.save_checkpoint(step, TENSORS, {}, keep=3)
    torn = run.path / "checkpoints" / "step-00000003.safetensors"
    torn.write_bytes(torn.read_bytes()[:-1])
    (run.path / "checkpoints" / "step-00000002.safetensors").unlink()
    found = run.load_checkpoint()
    assert found.step == 1
    assert same(found, TENSORS)
    assert len(found.skipped) == 2
    assert re.search(r"00000003.safetensors has [\d,]+ bytes: expected", found.skipped[0])
    assert re.search(r"00000002.safetensors is missing", found.skipped[1])
    with pytest.raises(CorruptFile, match=r"00000003.safetensors"):
        run.load_checkpoint(3)
    (run.path / "checkpoints" / "step-00000001.json").write_text("{}")
    with pytest.raises(CorruptFile, match=r"no checkpoint is intact: .*3.*2.*1"):
        run.load_checkpoint()


def test_a_checkpoint_of_another_schema_or_step_is_refused(run: Run) -> None:
    run.save_checkpoint(1, {}, {})
    directory = run.path / "checkpoints"
    for ending in ("json", "safetensors"):
        content = (directory / f"step-00000001.{ending}").read_bytes()
        (directory / f"step-00000002.{ending}").write_bytes(content)
    with pytest.raises(CorruptFile, match=r"00000002.json was altered"):
        run.load_checkpoint(2)
    record = directory / "step-00000001.json"
    record.write_text(record.read_text().replace('"schema": 1', '"schema": 9'))
    with pytest.raises(CorruptFile, match=r"schema version 9; .* reads 1"):
        run.load_checkpoint(1)


def test_arrays_without_a_record_are_no_checkpoint(run: Run) -> None:
    run.save_checkpoint(1, TENSORS, {})
    run.save_checkpoint(2, TENSORS, {})
    (run.path / "checkpoints" / "step-00000002.json").unlink()
    assert run.checkpoints() == [1]
    assert run.load_checkpoint().step == 1
    run.save_checkpoint(3, TENSORS, {}, keep=1)
    assert len(os.listdir(run.path / "checkpoints")) == 2


# The result.


def test_a_result_is_written_until_the_run_is_finished(run: Run) -> None:
    with pytest.raises(BeliefspaceError, match="has no result; its status is running"):
        run.result()
    run.write_result({"kl_bits": 1.0})
    run.write_result({"kl_bits": float("-inf")})
    run.set_status("finished")
    with pytest.raises(RunExists, match="not overwritten"):
        run.write_result({"kl_bits": 2.0})
    assert run.result() == {"kl_bits": "-inf"}


def test_a_finished_run_whose_result_is_lost_can_go_on(run: Run) -> None:
    run.write_result({"found": 3})
    run.set_status("finished")
    assert run.finished
    (run.path / "result.json").unlink()
    assert not run.finished
    with pytest.raises(BeliefspaceError, match=r"no result.*go on with: beliefspace resume"):
        run.result()
    run.write_result({"found": 3})
    assert run.finished


@pytest.mark.parametrize("step", ["many", 1.0, None, True])
def test_a_step_that_is_no_whole_number_is_corrupt(run: Run, step: object) -> None:
    (run.path / "metrics.jsonl").write_text(json.dumps({"step": step}) + "\n")
    with pytest.raises(CorruptFile, match=r"metrics.jsonl, line 1 has step .*a whole number"):
        run.truncate_metrics(after_step=1)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("metrics.jsonl", Run.metrics),
        ("config.toml", Run.config_toml),
        ("result.json", Run.result),
        ("checkpoints/step-00000001.safetensors", Run.load_checkpoint),
    ],
)
def test_a_directory_in_a_file_s_place_is_corrupt(run: Run, name: str, read: Callable) -> None:
    run.save_checkpoint(1, TENSORS, {})
    place = run.path / name
    place.unlink(missing_ok=True)
    place.mkdir()
    with pytest.raises(CorruptFile, match=f"{place} is a directory"):
        read(run)


@pytest.mark.parametrize("content", [100_000 * "[", '{"a": ' + 5000 * "1" + "}"])
def test_json_that_python_does_not_read_is_corrupt(run: Run, content: str) -> None:
    (run.path / "environment.json").write_text(content)
    with pytest.raises(CorruptFile, match=r"environment.json is not valid JSON"):
        run.environment()
    (run.path / "metrics.jsonl").write_text(content + "\n")
    with pytest.raises(CorruptFile, match=r"metrics.jsonl, line 1 is not valid JSON"):
        run.metrics()


def test_a_place_that_cannot_be_is_named_as_it_was_given(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for place in (loop, tmp_path / ("x" * 300), Path("/proc/beliefspace")):
        with pytest.raises(InvalidInput) as caught:
            Run.create(place, "train", "", {})
        assert str(caught.value).startswith(f"cannot make a run at {place}: ")
        assert ".tmp" not in str(caught.value)
    assert Run.create(tmp_path / ("x" * 250), "train", "", {}).kind == "train"


# A full disk and a killed process.


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["write", "fsync", "open", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    file = tmp_path / "result.json"
    write_atomic(file, "old")

    def full(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(files.os, call, full)
        with pytest.raises(NoSpace, match=r"result.json: it needs 2,000 bytes"):
            write_atomic(file, b"x" * 2000)
    assert everything(tmp_path) == {"result.json": b"old"}


def test_a_disk_that_fills_up_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = os.write, []

    def filling(descriptor: int, data: memoryview) -> int:
        if written:
            raise OSError(errno.ENOSPC, "full")
        written.append(write(descriptor, data[: len(data) // 2]))
        return written[0]

    monkeypatch.setattr(files.os, "write", filling)
    with pytest.raises(NoSpace):
        write_atomic(tmp_path / "a", b"x" * 100)
    assert written == [50]
    assert os.listdir(tmp_path) == []


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(files.os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    write_atomic(tmp_path / "a", "häuser " * 20)
    assert (tmp_path / "a").read_text(encoding="utf-8") == "häuser " * 20


def test_other_errors_pass_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="broken disk") as caught:
        write_atomic(tmp_path / "a", "x")
    assert caught.value.filename == str(tmp_path / "a")
    assert os.listdir(tmp_path) == []


def test_no_half_made_run_is_left_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, calls = os.replace, []

    def full_at_last(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "full")
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", full_at_last)
    with pytest.raises(NoSpace, match="bytes"):
        Run.create(tmp_path / "run", "train", "", {})
    assert os.listdir(tmp_path) == []


def test_a_full_disk_takes_a_metrics_line_back(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.append_metrics({"step": 1})
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:5]))
        with pytest.raises(NoSpace, match=r"metrics.jsonl"):
            run.append_metrics({"step": 2})
    assert (run.path / "metrics.jsonl").read_bytes() == b'{"step": 1}\n'
    run.append_metrics({"step": 3})
    assert run.metrics() == [{"step": 1}, {"step": 3}]


def test_a_full_disk_leaves_the_checkpoint_of_the_same_step(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.save_checkpoint(1, TENSORS, {"try": 1})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "write", full)
        with pytest.raises(NoSpace, match=r"step-00000001.safetensors: it needs [\d,]+ bytes"):
            run.save_checkpoint(1, TENSORS, {"try": 2})
    assert run.load_checkpoint(1).meta == {"try": 1}


KILLED = """
import os, signal, sys
import numpy as np
from beliefspace.core import files
from beliefspace.core.store import Run
run, die_at, replace, calls = Run.open(sys.argv[1]), int(sys.argv[2]), os.replace, []
def deadly(source, target):
    calls.append(target)
    if len(calls) == die_at:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
with run.locked():
    files.os.replace = deadly
    exec(sys.argv[3])
"""


@pytest.mark.parametrize(
    ("action", "die_at"),
    [
        ("run.set_status('finished')", 1),
        ("run.truncate_metrics(0)", 1),
        ("run.write_result({'kl_bits': 2})", 1),
        ("run.save_checkpoint(2, {'x': np.ones(3)}, {})", 1),
        ("run.save_checkpoint(2, {'x': np.ones(3)}, {})", 2),
    ],
)
def test_a_process_killed_before_the_rename_leaves_the_old_files(
    run: Run, action: str, die_at: int
) -> None:
    run.append_metrics({"step": 1})
    run.write_result({"kl_bits": 1})
    run.save_checkpoint(1, TENSORS, {})
    before = everything(run.path)
    with python(KILLED, run.path, die_at, action) as other:
        assert other.wait(60) == -signal.SIGKILL
    left = everything(run.path)
    assert {name: left[name] for name in before} == before
    assert any(name.endswith(".tmp") for name in left)
    assert run.checkpoints() == [1]
    assert same(run.load_checkpoint(), TENSORS)
    with run.locked():
        # Whoever writes next clears away what the killed process could not.
        assert not any(name.endswith(".tmp") for name in everything(run.path))


def test_a_process_killed_while_replacing_a_step_leaves_no_mismatched_pair(run: Run) -> None:
    run.save_checkpoint(1, TENSORS, {})
    run.save_checkpoint(2, TENSORS, {})
    action = "run.save_checkpoint(2, {'x': np.ones(3)}, {})"
    with python(KILLED, run.path, 2, action) as other:
        assert other.wait(60) == -signal.SIGKILL
    assert run.checkpoints() == [1]
    assert run.load_checkpoint().skipped == ()


# Where a run took place.


def test_the_environment_is_found_without_importing_what_it_lists() -> None:
    program = (
        "import json, sys\n"
        "from beliefspace.core.environment import environment\n"
        "print(json.dumps([environment(), sorted(sys.modules)]))\n"
    )
    with python(program) as other:
        found, modules = json.loads(other.stdout.read())
    assert other.returncode == 0
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["packages"]["numpy"] == np.__version__
    assert found["processor"]
    assert found["cpus"] == len(os.sched_getaffinity(0))
    assert {"torch", "numpy", "scipy"}.isdisjoint(modules)


def test_the_environment_records_the_thread_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    threads = environment()["threads"]
    assert threads["OMP_NUM_THREADS"] == "3"
    assert "MKL_NUM_THREADS" not in threads


def test_a_directory_or_device_is_never_replaced(tmp_path):
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(InvalidInput, match="not a regular file"):
            write_atomic(path, "text")
    assert Path("/dev/null").is_char_device()
