"""Run directories with results written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.report.made import CONFIG, TRAINING, score

from beliefspace.core.store import Run


@pytest.fixture
def make_run(tmp_path):
    """Make a run directory; every part can be replaced."""

    def make(
        name="first",
        *,
        seed=0,
        task="coin",
        model="transformer",
        width=64,
        steps=1500,
        config=None,
        looks=((100, 1.0, 0.9), (1000, 0.1, 0.2), (10_000, 0.02, 0.03)),
        result=None,
        status="finished",
        parent="runs",
        kind="train",
    ) -> Path:
        text = CONFIG.format(seed=seed, task=task, model=model, width=width, steps=steps)
        environment = {
            "python": "3.11.7",
            "processor": "A processor",
            "packages": {"torch": "2.13"},
        }
        path = tmp_path / parent / name
        run = Run.create(path, kind, text if config is None else config, environment)
        for step, (predictions, kl, error) in enumerate(looks, start=1):
            row = {"step": step, "predictions": predictions}
            run.append_metrics(row | {"kl_bits": kl, "entropy_error_bits": error})
        if result is None and status == "finished":
            result = {"score": score(), "training": TRAINING}
        if result:
            run.write_result(result)
        run.set_status(status)
        return path

    return make
