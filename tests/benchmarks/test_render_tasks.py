"""The tables about tasks, from given results."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import filtering, render, results
from tests.benchmarks.test_render import measure, rows, training

from beliefspace.core.streams import Stream
from beliefspace.windtunnel.tasks.hmm import HMM
from beliefspace.windtunnel.tasks.hmm_parameters import Parameters

PEERS = ("scaled recursion", "hmmlearn, forward pass", "hmmlearn, public interface")


def keep_drawing(folder, name, share):
    rounds = [
        {"drawn": 0.001, "with predictive": share * 0.02 * k, "step": 0.02} for k in (1, 1, 2)
    ]
    facts = {"task": name, "batch": 60, "length": 20, "rounds": rounds}
    results.keep(folder, f"drawing/{name}", "x", facts)


def keep_filtering(folder, lead, public=50.0, gap=1e-15):
    one = {"ours": 0.002, PEERS[0]: 0.002 * lead, PEERS[1]: 0.02, PEERS[2]: 0.002 * public}
    facts = {"size": "some", "rounds": [one], "difference": {PEERS[0]: gap, PEERS[1]: gap / 2}}
    results.keep(folder, "filtering/some", "x", facts)


@pytest.mark.parametrize(("share", "verdict"), [(0.1, "met"), (0.2, "missed")])
def test_the_costliest_task_decides_about_drawing(tmp_path, share, verdict):
    keep_drawing(tmp_path, "cheap", 0.01)
    keep_drawing(tmp_path, "dear", share)
    text = render.render(tmp_path)
    (goal,) = rows(text, "drawing a batch")
    assert goal[2:] == [f"{100 * share:.0f} % (dear)", verdict]
    (cheap,) = rows(text, "cheap")
    assert cheap[-1] == "1 % (1 % to 2 %)"


@pytest.mark.parametrize(
    ("lead", "public", "gap", "verdicts"),
    [
        (2.1, 21.0, 1e-12, ["met", "met", "met"]),
        (1.9, 19.0, 1e-9, ["missed", "missed", "missed"]),
    ],
)
def test_each_wish_about_the_filter_is_judged(tmp_path, lead, public, gap, verdicts):
    keep_filtering(tmp_path, lead, public, gap)
    found = rows(render.render(tmp_path), "filtering:")
    assert [goal[-1] for goal in found] == verdicts


def test_a_model_stands_between_its_neighbours_on_the_ladder(tmp_path):
    facts = {
        "task": "coin",
        "kl_bits": measure(0.01),
        "entropy_error_bits": measure(0.02),
        "ladder": {"uniform": 0.5, "window-1": 0.1, "window-2": 0.004, "window-4": 1e-5},
        "memory": None,
        "training": training(),
    }
    results.keep(tmp_path, "tasks/coin", "x", facts)
    text = render.render(tmp_path)
    (row,) = rows(text, "coin")
    assert row[1:5] == ["0.01", "0.02", "window-2 (0.004)", "window-1 (0.1)"]


def test_the_contestants_of_the_filter_agree():
    task = HMM(3, 4, 7)
    chains = task.batch(20, Stream(0, "filtering")).latent
    parameters, symbols = Parameters.split(chains.parameters), chains.observations[:, :-1]
    exact = task.batch(20, Stream(0, "filtering")).belief.log_probs.reshape(20, 7, 3)
    assert np.allclose(filtering.scaled(parameters, symbols), exact, atol=1e-12)
