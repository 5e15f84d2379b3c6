"""What makes training efficient: the recommended recipe with one choice changed at a time.

Symbols:
    n       predictions seen in training (scored positions)
    KL      KL(Bayes || model) after it, in nats
    2 KL n  the statistical constant: maximum likelihood with k parameters tends to k, so it says how
            many parameters' worth of noise a recipe ends with; budget aside, lower is better
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from beliefspace.studies.bijection import recipe
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.optimizers import AdamW, Muon
from beliefspace.windtunnel.recipe import Evaluation, Recipe

from benchmarks import results
from benchmarks.training import RUNS, Job, seconds_left, train_missing

BUDGET = "35 cpu-s"
SEEDS = (0, 1)
REFERENCE = "the recommended recipe"


def arms(reference: Recipe) -> dict[str, Recipe]:
    """Return the recipe and all that differ from it in one choice, by what is different."""
    model, optimizer = reference.model, reference.optimizer
    assert isinstance(model, Transformer) and isinstance(optimizer, Muon)

    def with_model(**choices: Any) -> Recipe:
        return replace(reference, model=replace(model, **choices))

    def with_schedule(**choices: Any) -> Recipe:
        return replace(reference, schedule=replace(reference.schedule, **choices))

    variants = {
        "balanced batches": replace(reference, balanced=True),
        "independent sequences": replace(reference, balanced=False),
        "posterior targets": replace(reference, targets="posterior"),
        "AdamW for all parameters": replace(reference, optimizer=AdamW()),
        "no positions": with_model(positions="none"),
        "RMS norm": with_model(norm="rms"),
        "no clipping": with_schedule(clip=0.0),
        "gradient clipped to 1": with_schedule(clip=1.0),
    }
    for scale in (1.0, 4.0, 10.0, 30.0):
        variants[f"logit scale {scale:g}"] = with_model(logit_scale=scale)
    for width in (24, 32, 64):
        variants[f"width {width}"] = with_model(width=width)
    for heads in (1, 2, 4):
        variants[f"heads {heads}"] = with_model(heads=heads)
    for depth in (1, 2):
        variants[f"depth {depth}"] = with_model(depth=depth)
    for rate in (0.01, 0.02, 0.04):
        muon = replace(optimizer, learning_rate=rate)
        variants[f"Muon rate {rate:g}"] = replace(reference, optimizer=muon)
    for batch in (20, 60, 120, 240):
        variants[f"batch {batch}"] = with_schedule(batch=batch)
    for decay in ("constant", "linear", "cosine"):
        variants[f"{decay} rate" if decay == "constant" else f"{decay} decay"] = with_schedule(
            decay=decay
        )
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
    train_missing(jobs(), folder, runs)
