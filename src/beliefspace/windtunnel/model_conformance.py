"""What every model must satisfy, as one call; the tests run it over everything that is registered.

Parameters are moved off their initial values first, gains from 1 and biases from 0, so that no part
is hidden behind a value that does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch
from torch import Tensor

from beliefspace.core.config import content_hash, from_toml, to_toml
from beliefspace.core.errors import BeliefspaceError, InvalidInput
from beliefspace.core.store import Checkpoint
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.conformance import ConformanceError
from beliefspace.windtunnel.models.base import ModelSpec, output_count
from beliefspace.windtunnel.networks.base import Network
from beliefspace.windtunnel.optimizers import AdamW
from beliefspace.windtunnel.recipe import Recipe, Schedule
from beliefspace.windtunnel.tasks.base import Task
from beliefspace.windtunnel.trainer import Trainer

SEQUENCES = 3
SAME = 1e-5
"""Numbers of one function computed in two ways in float32: of this size or relative size apart."""
MOVED = 1e-4
"""Numbers that are meant to differ: by more than this."""


def check_model(spec: ModelSpec, task: Task) -> None:
    """Check one (tiny) model on one (tiny) task against every rule of the contract.

    Raises:
        ConformanceError: on the first rule that is broken.
    """
    for rule in RULES:
        try:
            problem = rule(spec, task)
        except (BeliefspaceError, RuntimeError) as error:
            problem = str(error)
        if problem:
            name = rule.__name__.replace("_", " ")
            raise ConformanceError(f"{spec} on {task}: {name}: {problem}")


# ---------------------------------------------------------------- outputs


def outputs_are_shaped_as_said(spec: ModelSpec, task: Task) -> str:
    """One row of finite float32 numbers per position, for numpy arrays and for tensors."""
    network, inputs = _network(spec, task), _inputs(task)
    expected = (SEQUENCES, task.length, output_count(task))
    for given in (inputs, torch.from_numpy(inputs)):
        outputs = _outputs(network, given)
        if tuple(outputs.shape) != expected or outputs.dtype != torch.float32:
            return f"outputs are {outputs.dtype} {tuple(outputs.shape)}; expected {expected}"
        if not torch.isfinite(outputs).all():
            return "outputs are not all finite"
    return ""


def causal(spec: ModelSpec, task: Task) -> str:
    """Outputs up to a position, past the header, stay when everything after it is changed."""
    network, inputs, others = _network(spec, task), _inputs(task), _inputs(task, step=1)
    plain = _outputs(network, inputs)
    for end in range(task.prefix + 1, task.length):
        mixed = np.concatenate([inputs[:, :end], others[:, end:]], axis=1)
        seen = slice(task.prefix, end)
        gap = _gap(_outputs(network, mixed)[:, seen], plain[:, seen])
        if not gap <= SAME:
            return f"inputs from position {end} on change outputs before it by {gap:.3g}"
    return ""


def sequences_do_not_see_each_other(spec: ModelSpec, task: Task) -> str:
    """The outputs of a sequence are the same in a batch of any size."""
    network, inputs = _network(spec, task), _inputs(task)
    gap = _gap(_outputs(network, inputs[1:2]), _outputs(network, inputs)[1:2])
    return "" if gap <= SAME else f"by itself a sequence has other outputs, by {gap:.3g}"


def columns_are_the_same_numbers(spec: ModelSpec, task: Task) -> str:
    """Outputs at chosen positions, in any order, are those among all positions."""
    network, inputs = _network(spec, task), _inputs(task)
    scored = np.flatnonzero(task.batch(SEQUENCES, _STREAM).scored[0])
    plain = _outputs(network, inputs)
    for columns in (scored, scored[::-1].copy(), scored[-1:]):
        with torch.no_grad():
            chosen = network(inputs, columns=columns)
        if tuple(chosen.shape) != (SEQUENCES, len(columns), plain.shape[2]):
            return f"outputs at {len(columns)} columns have the shape {tuple(chosen.shape)}"
        gap = _gap(chosen, plain[:, columns])
        if not gap <= SAME:
            return f"outputs at columns {columns.tolist()} are others, by {gap:.3g}"
    return ""


def parallel_and_recurrent_forms_agree(spec: ModelSpec, task: Task) -> str:
    """Position by position come the outputs of the whole sequence.

    A network that declares that it has no recurrent form refuses instead, and says why.
    """
    network, inputs = _network(spec, task), _inputs(task)
    header = inputs[:, : task.prefix]
    if not network.recurrent:
        return _refused_without_reason(network, header)
    plain = _outputs(network, inputs)
    with torch.no_grad():
        stream = network.stream(header)
        for position in range(task.prefix, task.length):
            gap = _gap(stream(inputs[:, position]), plain[:, position])
            if not gap <= SAME:
                return f"at position {position} the recurrent form is off by {gap:.3g}"
    return ""


def the_same_in_double_precision(spec: ModelSpec, task: Task) -> str:
    """In float64 the outputs are float64, and near those of float32."""
    network, inputs = _network(spec, task), _inputs(task)
    single = _outputs(network, inputs)
    double = _outputs(network.double(), inputs)
    if double.dtype != torch.float64:
        return f"in float64 outputs are {double.dtype}"
    gap = _gap(single.double(), double)
    return "" if gap <= 100 * SAME else f"in float64 the outputs are others, by {gap:.3g}"


# ---------------------------------------------------------------- points


def points_are_passed_as_listed(spec: ModelSpec, task: Task) -> str:
    """Every point listed comes by once, in the order listed, with as many axes as it says."""
    network, passed = _network(spec, task), _Listing()
    with torch.no_grad():
        network(_inputs(task), tap=passed)
    listed = [point.name for point in network.points()]
    for number, name in enumerate(listed):
        if name in listed[:number]:
            return f"{name} is listed twice"
    if passed.names != listed:
        odd = [name for name in passed.names if name not in listed or passed.names.count(name) > 1]
        odd += [name for name in listed if name not in passed.names]
        return f"points passed are not those listed: {odd or 'their order is another'}"
    for point, axes in zip(network.points(), passed.axes, strict=True):
        if len(point.shape.split()) != axes:
            return f"{point.name} has {axes} axes; it says {point.shape!r}"
    return ""


def reading_changes_nothing(spec: ModelSpec, task: Task) -> str:
    """Recording any or all points leaves the outputs alone; so do edits that change nothing.

    With nothing asked for, nothing is recorded.
    """
    network, inputs = _network(spec, task), _inputs(task)
    plain, nothing = network.run(inputs)
    if nothing.values:
        return f"{list(nothing.values)} were recorded unasked"
    for name in ["*", *(point.name for point in network.points())]:
        gap = _gap(network.run(inputs, [name])[0], plain)
        if not gap <= SAME:
            return f"reading {name} changes the outputs by {gap:.3g}"
    gap = _gap(network.edit({"*": lambda value: value}).run(inputs)[0], plain)
    return "" if gap <= SAME else f"idle edits change the outputs by {gap:.3g}"


def every_point_is_live(spec: ModelSpec, task: Task) -> str:
    """What is edited at a point reaches the outputs, and is what a trace then shows.

    Values before edits are recorded in one run, in which a network may take another path.
    """
    network, inputs = _network(spec, task), _inputs(task)
    plain, before = network.run(inputs, ["*"])
    for name in (point.name for point in network.points()):
        moved = 0.0
        for edit in _EDITS:
            outputs, trace = network.edit({name: edit}).run(inputs, [name])
            if _gap(trace[name], edit(before[name])) > MOVED:
                return f"a trace shows {name} as it was before its edit"
            moved = max(moved, _gap(outputs, plain))
            if moved > MOVED:
                break
        else:
            return f"edits of {name} change the outputs by at most {moved:.3g}"
    return ""


# ---------------------------------------------------------------- parameters


def parameters_are_counted(spec: ModelSpec, task: Task) -> str:
    """The count in closed form is that of the network."""
    built = sum(p.numel() for p in spec.build(task, _INITIAL).parameters())
    said = spec.parameters(task)
    return "" if said == built else f"it says {said:,} parameters, and has {built:,}"


def the_same_stream_gives_the_same_bits(spec: ModelSpec, task: Task) -> str:
    """Initial values are a function of the stream, and torch's own generator is let be."""
    before = torch.get_rng_state()
    first, second = spec.build(task, _INITIAL), spec.build(task, _INITIAL)
    if not torch.equal(torch.get_rng_state(), before):
        return "torch's global generator was used"
    if not _same_state(first, second):
        return "two networks of one stream differ"
    if _trainable(first) and _same_state(first, spec.build(task, Stream(8, "initial"))):
        return "networks of two streams are the same"
    return ""


def gradients_reach_every_parameter(spec: ModelSpec, task: Task) -> str:
    """Every trainable parameter has an effect on the outputs that are scored."""
    network = _network(spec, task)
    if not _trainable(network):
        return ""
    batch = task.batch(32, _STREAM)
    scored = np.flatnonzero(batch.scored.any(axis=0))
    torch.autograd.backward(network(batch.inputs, columns=scored).square().sum())
    for name, parameter in network.named_parameters():
        if parameter.requires_grad and (parameter.grad is None or not parameter.grad.any()):
            return f"no gradient reaches {name}"
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            return f"the gradient of {name} is not finite"
    return ""


# ---------------------------------------------------------------- files


def survives_a_config_file(spec: ModelSpec, task: Task) -> str:
    """The model reads back from TOML as itself."""
    return "" if from_toml(type(spec), to_toml(spec)) == spec else "it reads back as another"


def survives_a_checkpoint(spec: ModelSpec, task: Task) -> str:
    """Arrays saved as safetensors make another network of the same model the same function."""
    network, other = _network(spec, task), spec.build(task, Stream(8, "initial")).eval()
    arrays = {name: value.numpy() for name, value in network.state_dict().items()}
    loaded = safetensors.numpy.load(safetensors.numpy.save(arrays))
    other.load_state_dict({name: torch.from_numpy(value) for name, value in loaded.items()})
    inputs = _inputs(task)
    same = torch.equal(_outputs(network, inputs), _outputs(other, inputs))
    return "" if same else "after loading the outputs are others"


def training_resumes_to_the_same_bits(spec: ModelSpec, task: Task) -> str:
    """One step, a checkpoint, and a step by another process end as two steps do."""
    if not _trainable(spec.build(task, _INITIAL)):
        return ""
    schedule = Schedule(budget="2 steps", batch=4)
    recipe = Recipe(task, spec, optimizer=AdamW(), schedule=schedule)
    straight, resumed = Trainer(recipe), Trainer(recipe)
    straight.advance(0, 2)
    tensors = {name: value.copy() for name, value in straight.tensors().items()}
    resumed.restore(Checkpoint(1, tensors, {"recipe": content_hash(recipe)}), recipe, Path("a run"))
    straight.advance(1, 2)
    resumed.advance(1, 2)
    ends = (straight.tensors(), resumed.tensors())
    off = [name for name in ends[0] if not np.array_equal(ends[0][name], ends[1][name])]
    return f"resumed, {off[0]} is another" if off else ""


Rule = Callable[[ModelSpec, Task], str]

RULES: tuple[Rule, ...] = (
    outputs_are_shaped_as_said,
    causal,
    sequences_do_not_see_each_other,
    columns_are_the_same_numbers,
    parallel_and_recurrent_forms_agree,
    the_same_in_double_precision,
    points_are_passed_as_listed,
    reading_changes_nothing,
    every_point_is_live,
    parameters_are_counted,
    the_same_stream_gives_the_same_bits,
    gradients_reach_every_parameter,
    survives_a_config_file,
    survives_a_checkpoint,
    training_resumes_to_the_same_bits,
)
"""Every rule: a function from a model and a task to what is wrong, or nothing."""

_STREAM = Stream(0, "conformance")
_INITIAL = Stream(7, "initial")


def _stretched(value: Tensor) -> Tensor:
    """Change a value by something that no norm or softmax takes out again."""
    return 1.5 * value + torch.linspace(-1, 1, value.shape[-1], dtype=value.dtype)


# One that shows is enough: each has values that hide it, as one channel alone hides the reversal.
_EDITS: tuple[Callable[[Tensor], Tensor], ...] = (
    _stretched,
    lambda value: value.flip(-1),
    torch.zeros_like,
)


class _Listing:
    """A tap that wants every point and notes which come by."""

    active = True

    def __init__(self) -> None:
        self.names: list[str] = []
        self.axes: list[int] = []

    def wants(self, name: str) -> bool:
        return True

    def __call__(self, name: str, value: Tensor) -> Tensor:
        self.names.append(name)
        self.axes.append(value.dim())
        return value


def _network(spec: ModelSpec, task: Task) -> Network:
    """Return a network in evaluation mode whose trainable parameters are off their first values."""
    network = spec.build(task, _INITIAL).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in _trainable(network):
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return network


def _trainable(network: Network) -> list[torch.nn.Parameter]:
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def _refused_without_reason(network: Network, header: np.ndarray) -> str:
    """Return what is wrong with the refusal to stream of a network without a recurrent form."""
    try:
        network.stream(header)
    except InvalidInput as refusal:
        said = str(refusal)
    else:
        return "it streams, and declares that it has no recurrent form"
    try:
        Network.stream(network, header)
    except InvalidInput as default:
        return f"{said!r} does not say why" if said in ("", str(default)) else ""
    return ""


def _inputs(task: Task, step: int = 0) -> np.ndarray:
    return task.batch(SEQUENCES, _STREAM, step).inputs


def _outputs(network: Network, inputs: np.ndarray | Tensor) -> Tensor:
    with torch.no_grad():
        return network(inputs)


def _gap(one: Tensor, other: Tensor) -> float:
    """Return the largest difference, in units of max(1, size); of equal infinities 0."""
    off = (one - other).abs() / other.abs().clamp(min=1.0)
    return float(torch.where(one == other, 0.0, off).nan_to_num(nan=torch.inf).max())


def _same_state(network: Network, another: Network) -> bool:
    one, other = network.state_dict(), another.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
