"""What a run records of a user's files is read with care: it may come from anyone."""

from __future__ import annotations

import hashlib

import pytest

from beliefspace.core.environment import code_needed, recorded_files


@pytest.mark.parametrize(
    "plugins",
    [
        None,
        "coin.py",
        {"path": "coin.py"},
        [None, 3, "coin.py", {}],
        [{"path": "coin.py"}, {"sha256": "ab"}],
        [{"path": 3, "sha256": "ab"}, {"path": "coin.py", "sha256": None}],
        [{"path": "", "sha256": "ab"}, {"path": "\x1b[2Jcoin.py", "sha256": "ab"}],
    ],
)
def test_malformed_entries_are_left_out(plugins):
    assert recorded_files({"plugins": plugins}) == {}
    good = {"path": "coin.py", "sha256": "ab"}
    if isinstance(plugins, list):
        assert recorded_files({"plugins": [*plugins, good]}) == {"coin.py": "ab"}
    assert recorded_files({}) == {}


def test_each_file_is_named_with_its_state_and_how_to_load_it(tmp_path):
    same, changed, gone = (tmp_path / f"{name} it.py" for name in ("same", "changed", "gone"))
    for file in (same, changed):
        file.write_text("raise SystemExit('loaded')\n")
    digest = hashlib.sha256(same.read_bytes()).hexdigest()
    changed.write_text("x = 1\n")
    plugins = [{"path": str(file), "sha256": digest} for file in (same, changed, gone, tmp_path)]
    lines = code_needed({"plugins": plugins})
    states = [
        "unchanged since",
        "changed since: another sha256",
        "which is not there",
        "which is not there",
    ]
    assert [line.partition("(")[2].partition(")")[0] for line in lines] == states
    assert lines[0].startswith(f"the run needs code from {same} (")
    assert lines[0].endswith(f"if you trust it, add: --plugin '{same}'")
