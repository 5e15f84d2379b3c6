"""The tables about architectures, from given results, and how their memory is measured."""

from __future__ import annotations

import pytest
from benchmarks import render, results
from tests.benchmarks.test_render import rows

torch = pytest.importorskip("torch")

from benchmarks import layers  # noqa: E402

CORES = ("ours, Mamba-1", "ours, SSD", "mambapy")


def keep_layers(folder, points, megabytes=12.0):
    times = dict.fromkeys(CORES, 0.02)
    names = ("torch.nn.LSTM", "transformer block", "Mamba-1", "Mamba-2")
    facts = {
        "allocator": "default",
        "scans": {
            "64 x 40": {"rounds": [times], "added_megabytes": dict.fromkeys(CORES, megabytes)}
        },
        "layers": [dict.fromkeys(names, 0.1)],
        "points": points,
    }
    results.keep(folder, "layers/default", "x", facts)


def asked(plain, none, every=1.5):
    """Rounds with a given time of a plain call, added time without names, and ratio with all."""
    one = {"plain": plain, "no names": plain + none, "all names": plain * every}
    slow = {name: 3 * seconds for name, seconds in one.items()}
    return [one, slow, one]


@pytest.mark.parametrize(("added", "verdict"), [(0.5e-4, "met"), (2e-4, "missed")])
def test_no_names_is_judged_on_calls_that_take_long_and_the_fixed_cost_is_told(
    tmp_path, added, verdict
):
    keep_layers(tmp_path, {"cheap": asked(1e-4, 5e-5), "dear": asked(1e-2, added)})
    text = render.render(tmp_path)
    (goal,) = rows(text, "points: a run with no names")
    ratio = 1 + added / 1e-2
    assert goal[2] == f"{ratio:.3f} (dear; cheaper calls pay a fixed 50 µs at most)"
    assert goal[3] == verdict
    (cheap,) = rows(text, "cheap")
    assert cheap[3] == "50 (50 to 150)"


def test_the_costliest_model_decides_about_all_names(tmp_path):
    keep_layers(tmp_path, {"light": asked(1e-2, 0.0), "heavy": asked(1e-2, 0.0, every=2.5)})
    (goal,) = rows(render.render(tmp_path), "points: a run with all names")
    assert goal[2:] == ["2.50 (heavy)", "missed"]


@pytest.mark.parametrize(("megabytes", "shown"), [(12.0, "12"), (None, "unknown")])
def test_each_core_has_its_own_memory(tmp_path, megabytes, shown):
    keep_layers(tmp_path, {"dear": asked(1e-2, 0.0)}, megabytes)
    (row,) = rows(render.render(tmp_path), "default")
    assert row[-3:] == [shown] * 3


def test_memory_is_that_of_one_call_whatever_was_taken_before():
    def take(megabytes):
        return lambda: torch.ones(megabytes * 2**18).sum()

    found = [layers.added_megabytes(take(megabytes)) for megabytes in (200, 50)]
    if None in found:
        pytest.skip("this system does not let a process reset its high-water mark")
    assert found == pytest.approx([200, 50], abs=10)


def test_memory_is_unknown_where_the_system_does_not_tell(tmp_path, monkeypatch):
    monkeypatch.setattr(layers, "PROCESS", tmp_path / "absent")
    assert layers.added_megabytes(lambda: None) is None


def test_the_cores_take_their_gradients():
    for name, core in layers._cores(2, 8).items():
        if name != "mambapy":
            core(0)
