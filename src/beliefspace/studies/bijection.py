"""The recommended way to train a transformer on the full-size bijection task (2512.22471).

V = 20 values, 20 pairs, keys without replacement: the published setting. Which choices matter, and
which were tried and did not, is measured in ``benchmarks/``.
"""

from __future__ import annotations

from typing import Literal

from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.optimizers import AdamW, Muon
from beliefspace.windtunnel.recipe import Recipe, Schedule
from beliefspace.windtunnel.tasks.bijection import Bijection

TASK = Bijection(values=20, pairs=20)


def recipe(
    targets: Literal["sampled", "posterior"], budget: str, seed: int = 0, *, balanced: bool = False
) -> Recipe:
    """Return the recommended recipe.

    Args:
        targets: what is trained on; "sampled" is the published claim.
        budget: how long; see :mod:`beliefspace.windtunnel.recipe`.
        seed: of data and initial weights.
        balanced: batches that cover a symmetry of the task. They cut the noise of sampled outcomes,
            but they are made with knowledge of the task, so the claim is settled without them.
    """
    return Recipe(
        task=TASK,
        model=Transformer(width=32, depth=1, heads=2, logit_scale=10.0),
        optimizer=Muon(learning_rate=0.02, rest=AdamW(learning_rate=3e-3)),
        schedule=Schedule(budget, batch=120),
        targets=targets,
        balanced=balanced,
        seed=seed,
    )
