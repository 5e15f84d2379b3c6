"""``evaluate``: a trained run, or anything that can be called, against the exact posterior."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beliefspace.cli.arguments import WIDTH
from beliefspace.cli.console import Answer, Table, note, number
from beliefspace.cli.examples import settings_in_words
from beliefspace.cli.names import find_callable, open_run
from beliefspace.cli.recipes import chosen, part, with_parts
from beliefspace.cli.train import require_torch
from beliefspace.core.config import to_dict
from beliefspace.core.errors import BeliefspaceError, InvalidInput, no_exit
from beliefspace.core.registry import name_of
from beliefspace.core.store import Run
from beliefspace.studies.results import read_result
from beliefspace.windtunnel.recipe import Evaluation, Recipe, recipe_of
from beliefspace.windtunnel.tasks.base import CategoricalOutputs, Task

if TYPE_CHECKING:
    from beliefspace.windtunnel.calibration import Measures, Score

__all__ = ["evaluate"]


@dataclass(frozen=True)
class Options:
    """What is scored, on what.

    Args:
        task: name of the task, or a .py file that registers one; its settings are flags below. By
            default a run's own task.
        sequences: fresh sequences; by default a run's own number, or 2048.
        seed: of the evaluation set; by default a run's own, or 0.
        json: one JSON object.
    """

    task: str | None = None
    sequences: int | None = None
    seed: int | None = None
    json: bool = False


def evaluate(arguments: Sequence[str]) -> Answer:
    """Score a predictor against the exact posterior: beliefspace evaluate WHAT [flags].

    WHAT is a run's directory, package.module:function or FILE.py:function. A function is given
    inputs [n, T] (or [n, T, f]) and returns logits [n, T, m], for normal outcomes mean and log
    variance; it needs --task. The flags of the task are those of the class chosen.
    """
    what, *words = arguments or [""]
    if what in ("-h", "--help"):
        what, words = "", ["--help", *words]
    elif not what or what.startswith("-"):
        raise InvalidInput("say what to score first: beliefspace evaluate RUN, or FILE.py:function")
    run = open_run(what) if what and _is_run(what) else None
    own = None if run is None else recipe_of(run)
    task_class, default = _task(what, own, words)
    parts = {"task": (task_class, default, "what it is scored on.")}
    options, made = with_parts(Options, "evaluate", str(evaluate.__doc__), words, parts)
    defaults = own.evaluation if own else Evaluation()
    sequences = defaults.sequences if options.sequences is None else options.sequences
    seed = defaults.seed if options.seed is None else options.seed
    if run is not None and run.finished:
        read_result(run)  # files that do not belong together are no run to score
    predictor = _predictor(what) if run is None else _network(run)
    from beliefspace.windtunnel.calibration import score

    final = score(predictor, made["task"], sequences, seed)
    data: dict[str, Any] = {
        "evaluated": what,
        "task": to_dict(made["task"]),
        "score": final.to_dict(),
    }
    if run is not None:
        step = run.checkpoints()[-1]
        data |= {"status": run.status, "step": step}
        if run.status != "finished":
            note(f"note: {what} is not finished (status: {run.status}); scored after step {step:,}")
    return Answer(_parts(what, made["task"], final), data, options.json)


def _is_run(what: str) -> bool:
    return ":" not in what or Path(what).is_dir()


def _task(what: str, own: Recipe | None, words: Sequence[str]) -> tuple[type, Any]:
    kind = chosen("tasks", "--task", words)
    if own is not None and kind in (None, name_of(own.task)[1]):
        return type(own.task), own.task
    if kind is None and what:
        raise InvalidInput(f"say on which task {what} is to be scored: --task NAME")
    return part("tasks", kind or "bijection")


def _network(run: Run) -> Callable[[Any], Any]:
    require_torch()
    from beliefspace.windtunnel.training import load

    return load(run.path)


def _predictor(what: str) -> Callable[[Any], Any]:
    function = find_callable(what)
    if hasattr(function, "parameters"):
        return function  # a torch module, which the scoring puts into evaluation mode

    def reported(inputs: Any) -> Any:
        try:
            with no_exit(what):
                return function(inputs)
        except BeliefspaceError:
            raise
        except Exception as error:
            shape = list(inputs.shape)
            raise BeliefspaceError(
                f"{what} failed on inputs {shape}: {type(error).__name__}: {error}"
            ) from error

    return reported


def _parts(what: str, task: Task, final: Score) -> tuple[str | Table, ...]:
    head = "\n".join(
        textwrap.wrap(f"{what} on {name_of(task)[1]} ({settings_in_words(task)})", WIDTH)
    )
    rows = [_row(name, one) for name, one in final.ranked()]
    headers = ("predictor", "KL, bits", "95 % interval", "worst", "at", "entropy error, bits")
    how = f"{final.sequences:,} sequences, evaluation seed {final.seed}"
    if isinstance(task.outputs, CategoricalOutputs):
        how += f", mass over {final.support}"
    memory = () if final.memory is None else (str(final.memory),)
    return head, "", Table(headers, tuple(rows)), "", final.place, *memory, how


def _row(name: str, one: Measures) -> tuple[str, ...]:
    divergence, error = one.kl_bits, one.entropy_error_bits
    interval = divergence.interval
    bounds = f"{number(interval.low)} to {number(interval.high)}" if interval else "infinite mean"
    worst, at = number(divergence.worst), str(divergence.worst_position)
    return name, number(divergence.mean), bounds, worst, at, number(error.mean)
