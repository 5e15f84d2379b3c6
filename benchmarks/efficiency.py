"""What makes training efficient: the recommended recipe with one choice changed at a time.

Symbols:
    n       predictions seen in training (scored positions)
    KL      KL(Bayes || model) after it, in nats
    2 KL n  the statistical constant: maximum likelihood with k parameters brings it to k
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from beliefspace.studies.bijection import recipe
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.optimizers import AdamW, Muon, OptimizerSpec
from beliefspace.windtunnel.recipe import Evaluation, Recipe
from benchmarks import results
from benchmarks.training import RUNS, Job, seconds_left, train_missing

BUDGET = "35 cpu-s"
SEEDS = (0, 1)
REFERENCE = "the recommended recipe"


def arms(reference: Recipe) -> dict[str, Recipe]:
    """Return the recipe and all that differ from it in one choice, by what is different."""
    model, optimizer, schedule = reference.model, reference.optimizer, reference.schedule
    assert isinstance(model, Transformer)
    assert isinstance(optimizer, Muon)

    models = {
        "no positions": replace(model, positions="none"),
        "RMS norm": replace(model, norm="rms"),
        **{f"logit scale {by:g}": replace(model, logit_scale=by) for by in (1.0, 4.0, 10.0, 30.0)},
        **{f"width {width}": replace(model, width=width) for width in (24, 32, 64)},
        **{f"heads {heads}": replace(model, heads=heads) for heads in (1, 2, 4)},
        **{f"depth {depth}": replace(model, depth=depth) for depth in (1, 2)},
    }
    optimizers: dict[str, OptimizerSpec] = {
        "AdamW for all parameters": AdamW(),
        **{
            f"Muon rate {rate:g}": replace(optimizer, learning_rate=rate)
            for rate in (0.01, 0.02, 0.04)
        },
    }
    decays: tuple[Literal["linear", "cosine", "constant"], ...] = ("linear", "cosine", "constant")
    schedules = {
        "no clipping": replace(schedule, clip=0.0),
        "gradient clipped to 1": replace(schedule, clip=1.0),
        **{f"batch {batch}": replace(schedule, batch=batch) for batch in (20, 60, 120, 240)},
        **{f"{decay} rate": replace(schedule, decay=decay) for decay in decays},
    }
    variants = {
        "balanced batches": replace(reference, balanced=True),
        "independent sequences": replace(reference, balanced=False),
        "posterior targets": replace(reference, targets="posterior"),
        **{name: replace(reference, model=one) for name, one in models.items()},
        **{name: replace(reference, optimizer=one) for name, one in optimizers.items()},
        **{name: replace(reference, schedule=one) for name, one in schedules.items()},
    }
    changed = {name: variant for name, variant in variants.items() if variant != reference}
    return {REFERENCE: reference, **changed}


def jobs() -> list[Job]:
    """Return every run: each arm with each seed."""
    few_looks = Evaluation(looks=4)
    return [
        Job(
            f"efficiency/{name.replace(' ', '-').lower()}/seed-{seed}",
            replace(arm, evaluation=few_looks),
            {"arm": name, "seed": seed, "budget": BUDGET},
        )
        for seed in SEEDS
        for name, arm in arms(recipe("sampled", BUDGET, seed)).items()
    ]


def estimate(folder: Path = results.FOLDER) -> float:
    """Return about how many seconds of wall clock are left to measure."""
    return seconds_left(jobs(), folder)


def measure(folder: Path = results.FOLDER, runs: Path = RUNS) -> None:
    """Measure what is missing."""
    train_missing("efficiency", jobs(), folder, runs)
