"""The training loop: learns, follows its schedule, stops and resumes exactly, refuses bad input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from beliefspace.core.errors import CorruptFile, Interrupted, InvalidInput, RunExists
from beliefspace.core.store import Run
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.optimizers import AdamW, Muon
from beliefspace.windtunnel.recipe import Evaluation, Hardware, Recipe, Schedule, parse_budget
from beliefspace.windtunnel.tasks.bijection import Bijection

torch = pytest.importorskip("torch")
from beliefspace.windtunnel import training  # noqa: E402

TINY = Recipe(
    Bijection(5),
    Transformer(width=16, depth=1),
    schedule=Schedule("40 steps", batch=20),
    evaluation=Evaluation(sequences=64, looks=8),
)


def weights(run: Run) -> dict[str, bytes]:
    return {name: a.tobytes() for name, a in run.load_checkpoint().tensors.items()}


@pytest.mark.parametrize("optimizer", [Muon(), AdamW()])
@pytest.mark.parametrize("targets", ["sampled", "posterior"])
def test_training_brings_a_model_closer_to_bayes(tmp_path, optimizer, targets):
    recipe = replace(
        TINY, optimizer=optimizer, targets=targets, schedule=Schedule("300 steps", batch=20)
    )
    run = training.train(recipe, tmp_path / "run")
    looks = [row["kl_bits"] for row in run.metrics()]
    result = run.result()
    uniform = result["score"]["ladder"]["uniform"]["kl_bits"]["mean"]
    assert run.status == "finished"
    assert result["score"]["kl_bits"]["mean"] < 0.2 * uniform < looks[0]
    assert result["training"]["targets"] == targets
    assert result["training"]["predictions"] == 300 * 20 * 5


def test_the_same_recipe_gives_the_same_bits_and_another_seed_others(tmp_path):
    one = weights(training.train(TINY, tmp_path / "one"))
    again = weights(training.train(TINY, tmp_path / "again"))
    other = weights(training.train(replace(TINY, seed=1), tmp_path / "other"))
    assert one == again
    assert all(one[name] != other[name] for name in one if "layers" in name and "norm" not in name)


@pytest.mark.parametrize("optimizer", [Muon(), AdamW()])
@pytest.mark.parametrize("balanced", [True, False])
def test_a_stopped_run_resumes_to_the_same_bits(tmp_path, optimizer, balanced):
    recipe = replace(TINY, optimizer=optimizer, balanced=balanced)
    whole = training.train(recipe, tmp_path / "whole")

    def stop_at_15(progress):
        if progress.step == 15:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="stopped after 15 of 40 steps; go on with"):
        training.train(recipe, tmp_path / "broken", stop_at_15)
    assert Run.open(tmp_path / "broken").status == "interrupted"
    broken = training.resume(tmp_path / "broken")
    assert weights(broken) == weights(whole)
    rows = [{k: v for k, v in row.items() if k != "cpu_seconds"} for row in broken.metrics()]
    assert rows == [{k: v for k, v in r.items() if k != "cpu_seconds"} for r in whole.metrics()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("targets", ["sampled", "posterior"])
@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_a_run_killed_at_random_steps_ends_with_the_same_bits(tmp_path, optimizer, targets, seed):
    program = Path(__file__).with_name("exact_resume.py")
    done = subprocess.run(
        [sys.executable, program, optimizer, targets, tmp_path, str(seed)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    kills, differing = map(int, done.stdout.split())
    assert kills >= 2
    assert differing == 0


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    run = training.train(TINY, tmp_path / "run")
    before = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    training.resume(run.path)
    assert before == {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}


def test_a_trained_model_loads_and_scores_as_recorded(tmp_path):
    from beliefspace.windtunnel.calibration import score

    run = training.train(TINY, tmp_path / "run")
    again = score(training.load(run.path), TINY.task, sequences=64)
    assert again.to_dict() == run.result()["score"]


def test_posterior_targets_have_the_same_expected_gradient_and_less_noise_near_bayes(tmp_path):
    from beliefspace.core.streams import Stream
    from beliefspace.windtunnel.objective import loss_nats

    recipe = replace(TINY, schedule=Schedule("300 steps", batch=20), targets="posterior")
    network = training.load(training.train(recipe, tmp_path / "run").path)

    def gradient(targets, step, rows):
        network.zero_grad()
        batch = recipe.task.batch(rows, Stream(0, "fresh"), step)
        loss_nats(network, recipe.task, batch, targets).backward()
        return network.head.map.weight.grad.numpy().copy().ravel()

    many = gradient("sampled", 0, 20000), gradient("posterior", 0, 20000)
    sampled = np.stack([gradient("sampled", step, 20) for step in range(100)])
    posterior = np.stack([gradient("posterior", step, 20) for step in range(100)])
    error = sampled.std(axis=0) / np.sqrt(1000)
    assert np.abs(many[0] - many[1]).max() < 5 * error.max()
    assert posterior.var(axis=0).mean() < 0.2 * sampled.var(axis=0).mean()


def test_only_scored_columns_count_towards_the_loss():
    from beliefspace.core.streams import Stream
    from beliefspace.windtunnel.calibration import measure
    from beliefspace.windtunnel.objective import loss_nats
    from beliefspace.windtunnel.predictions import predict

    task = Bijection(4, format="A", keys="repeated", pairs=6)
    network = Transformer(width=16, depth=2).build(task, Stream(0, "initial"))
    batch = task.batch(50, Stream(0, "train"))
    believed = predict(network, task, batch)
    surprisal = believed.surprisal_bits(batch.outcomes).mean()
    loss = float(loss_nats(network, task, batch, "sampled").detach()) / np.log(2)
    assert loss == pytest.approx(surprisal, rel=1e-5)
    exact = batch.predictive.cross_entropy_bits(believed).mean()
    loss = float(loss_nats(network, task, batch, "posterior").detach()) / np.log(2)
    assert loss == pytest.approx(exact, rel=1e-5)
    assert measure(believed, batch).kl_bits.mean > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hardware": Hardware(device="cuda:7")}, "device 'cuda:7' is not available here"),
        ({"hardware": Hardware(device="toaster")}, "device 'toaster' is not available here"),
        ({"task": Bijection(5, pool=3), "balanced": True}, "a finite pool has no symmetry"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(tmp_path, change, message):
    with pytest.raises(InvalidInput, match=message):
        training.train(replace(TINY, **change), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_taken_directory_is_refused_untouched(tmp_path):
    (tmp_path / "note").write_text("mine")
    with pytest.raises(RunExists):
        training.train(TINY, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["note"]


def test_a_config_changed_after_the_fact_does_not_load(tmp_path):
    run = training.train(TINY, tmp_path / "run")
    config = run.path / "config.toml"
    config.write_text(config.read_text().replace("width = 16", "width = 32"))
    with pytest.raises(CorruptFile, match=r"another config\.toml"):
        training.load(run.path)


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("4000 steps", 4000, "steps"),
        ("20M predictions", 20e6, "predictions"),
        ("5min", 300, "seconds"),
        ("90s", 90, "seconds"),
        ("1.5 h", 5400, "seconds"),
        ("6 cpu-min", 360, "cpu-seconds"),
    ],
)
def test_budgets(text, amount, unit):
    assert vars(parse_budget(text)) == {"amount": amount, "unit": unit}


NO_BUDGETS = ("", "5", "min", "-5min", "0 steps", "1e999 steps", "5 parsecs", "1.2.3 s")


@pytest.mark.parametrize("text", NO_BUDGETS)
def test_budgets_that_are_none(text):
    with pytest.raises(InvalidInput, match="budget"):
        parse_budget(text)


def test_a_budget_of_predictions_is_counted_in_scored_positions():
    recipe = replace(TINY, schedule=Schedule("1k predictions", batch=20))
    assert training.resolve(recipe).schedule.steps == 10


def test_a_time_budget_becomes_steps_once():
    resolved = training.resolve(replace(TINY, schedule=Schedule("0.3 cpu-s", batch=20)))
    assert resolved.schedule.steps is not None
    assert resolved.schedule.budget == "0.3 cpu-s"


@pytest.mark.parametrize("decay", ["linear", "cosine", "constant"])
def test_the_rate_rises_once_and_falls_to_the_end(decay):
    schedule = Schedule(decay=decay, warmup_steps=10)
    rates = [schedule.rate(step, 200) for step in range(200)]
    assert max(rates) <= 1
    assert all(0 < rate for rate in rates)
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert (rates[-1] < 0.01) == (decay != "constant")


def test_a_stop_between_looks_loses_nothing_of_the_metrics(tmp_path, monkeypatch):
    whole = training.train(TINY, tmp_path / "whole")
    advance = training.Trainer.advance

    def stopping(trainer, step, steps):
        if step == 17:
            os.kill(os.getpid(), signal.SIGINT)
        return advance(trainer, step, steps)

    with monkeypatch.context() as patch:
        patch.setattr(training.Trainer, "advance", stopping)
        with pytest.raises(Interrupted, match="after 18 of 40"):
            training.train(TINY, tmp_path / "broken")
    broken = training.resume(tmp_path / "broken")
    assert weights(broken) == weights(whole)
    losses = [[row["loss_bits"] for row in run.metrics()] for run in (whole, broken)]
    assert losses[0] == losses[1]


def test_a_run_whose_loss_is_no_number_fails_and_keeps_the_last_good_state(tmp_path, monkeypatch):
    advance = training.Trainer.advance

    def diverging(trainer, step, steps):
        loss, predictions = advance(trainer, step, steps)
        return (float("nan") if step == 20 else loss), predictions

    monkeypatch.setattr(training.Trainer, "advance", diverging)
    with pytest.raises(training.Diverged, match=r"loss at step 20 .* lower learning rate"):
        training.train(TINY, tmp_path / "run", checkpoint_seconds=0)
    run = Run.open(tmp_path / "run")
    assert run.status == "failed"
    assert run.checkpoints()[-1] == 20


def test_a_full_disk_ends_the_run_as_failed_and_it_resumes(tmp_path, monkeypatch):
    from beliefspace.core.errors import NoSpace

    def full(*_, **__):
        raise NoSpace("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save_checkpoint", full)
        with pytest.raises(NoSpace):
            training.train(TINY, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert run.status == "failed"
    assert training.resume(run.path).status == "finished"


def test_going_on_from_an_older_checkpoint_is_said(tmp_path):
    def stop_at_30(progress):
        if progress.step == 30:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        training.train(TINY, tmp_path / "run", stop_at_30, checkpoint_seconds=0)
    newest = max((tmp_path / "run" / "checkpoints").glob("*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(CorruptFile, match="bytes: expected"):
        training.load(tmp_path / "run")
    with pytest.warns(UserWarning, match="going on from step 29: .*bytes: expected"):
        run = training.resume(tmp_path / "run")
    assert weights(run) == weights(training.train(TINY, tmp_path / "whole"))


@pytest.mark.parametrize(("steps", "looks"), [(79, 40), (40, 8), (7, 40), (1, 1), (100, 3)])
def test_looks_are_as_many_as_asked_and_the_last_is_at_the_end(tmp_path, steps, looks):
    recipe = replace(
        TINY,
        schedule=Schedule(f"{steps} steps", batch=2),
        evaluation=Evaluation(sequences=2, looks=looks),
    )
    seen = [row["step"] for row in training.train(recipe, tmp_path / "run").metrics()]
    assert len(seen) == min(steps, looks)
    assert seen[-1] == steps


def test_a_schedule_ends_where_it_ends():
    with pytest.raises(InvalidInput, match="no step 10 in a schedule of 10"):
        Schedule().rate(10, 10)


def test_given_steps_are_the_budget():
    resolved = training.resolve(replace(TINY, schedule=Schedule("5min", steps=70)))
    assert resolved.schedule == Schedule("70 steps", steps=70)


def test_a_task_that_breaks_its_contract_is_refused_before_anything_is_written(
    tmp_path, monkeypatch
):
    draw = Bijection.batch

    def past_the_vocabulary(task, sequences, stream, step=0):
        batch = draw(task, sequences, stream, step)
        return replace(batch, inputs=batch.inputs + 7)

    monkeypatch.setattr(Bijection, "batch", past_the_vocabulary)
    with pytest.raises(InvalidInput, match="Bijection breaks its contract: a token id is outside"):
        training.train(TINY, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_parameter_that_is_no_number_is_divergence(tmp_path, monkeypatch):
    advance = training.Trainer.advance

    def spoiling(trainer, step, steps):
        done = advance(trainer, step, steps)
        if step == 39:
            with torch.no_grad():
                trainer.network.head.map.weight.fill_(float("nan"))
        return done

    monkeypatch.setattr(training.Trainer, "advance", spoiling)
    with pytest.raises(training.Diverged, match="a parameter at step 40"):
        training.train(TINY, tmp_path / "run")


def test_a_finished_run_without_its_result_is_scored_again(tmp_path):
    run = training.train(TINY, tmp_path / "run")
    before = run.result()
    (run.path / "result.json").unlink()
    assert training.resume(run.path).result() == before


@pytest.mark.parametrize(
    "settings",
    [
        lambda: Schedule(clip=float("nan")),
        lambda: AdamW(learning_rate=float("inf")),
        lambda: AdamW(epsilon=float("inf")),
        lambda: AdamW(weight_decay=float("nan")),
        lambda: Muon(learning_rate=float("nan")),
        lambda: Transformer(logit_scale=float("inf")),
        lambda: Transformer(width=10**20),
        lambda: Bijection(values=10**30),
        lambda: Recipe(Bijection, Transformer()),
        lambda: Recipe(Bijection(), AdamW()),
    ],
)
def test_settings_that_are_no_settings(settings):
    with pytest.raises(InvalidInput):
        settings()
