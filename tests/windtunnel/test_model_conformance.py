"""Every registered model passes the conformance suite; each rule catches planted defects."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field, fields, replace

import pytest

from beliefspace.core import registry
from beliefspace.core.errors import BeliefspaceError, InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.core.trace import Point
from beliefspace.windtunnel.conformance import ConformanceError
from beliefspace.windtunnel.models.mlp import MLP
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.tasks.bijection import Bijection
from beliefspace.windtunnel.tasks.hmm import HMM
from beliefspace.windtunnel.tasks.linear_regression import LinearRegression

torch = pytest.importorskip("torch")

from beliefspace.core.taps import NO_TAP  # noqa: E402
from beliefspace.windtunnel import model_conformance  # noqa: E402
from beliefspace.windtunnel.model_conformance import check_model  # noqa: E402
from beliefspace.windtunnel.networks.base import Network  # noqa: E402
from beliefspace.windtunnel.networks.mlp import MLPNetwork, _MLPStreaming  # noqa: E402

TOKENS = Bijection(4)
REALS = LinearRegression(1, 3)
HEADED = HMM(2, 2, 3)
MODELS = [registry.resolve("models", name) for name in registry.names("models")]


def suits(spec, task):
    """Whether a model can be built for a task; one that cannot says so."""
    try:
        spec.build(task, Stream(0, "initial"))
    except InvalidInput:
        return False
    return True


def cases_of(cls):
    """Every tiny instance on the common tasks, headers injected as well; else on its own task."""
    for spec in cls.tiny():
        pairs = [(spec, task) for task in (TOKENS, REALS, HEADED)]
        if "side" in {setting.name for setting in fields(spec)}:
            pairs.append((replace(spec, side="inject"), HEADED))
        fitting = [(one, task) for one, task in pairs if suits(one, task)]
        yield from fitting or [(spec, own_task(spec))]


def own_task(spec):
    """Return the first tiny task that a model with a purpose of its own can be built for."""
    tasks = [registry.resolve("tasks", name) for name in registry.names("tasks")]
    return next(task for cls in tasks for task in cls.tiny() if suits(spec, task))


CASES = [case for cls in MODELS for case in cases_of(cls)]

# ---------------------------------------------------------------- what is registered


def test_every_registered_model_is_checked():
    assert {Transformer, MLP} <= set(MODELS)
    assert {type(spec) for spec, _ in CASES} == set(MODELS)


def test_no_specification_imports_torch():
    code = (
        "import sys; from beliefspace.core import registry; "
        "[registry.resolve('models', name).tiny() for name in registry.names('models')]; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("spec", "task"), CASES, ids=lambda part: type(part).__name__)
def test_every_registered_model_keeps_every_rule(spec, task):
    found = {rule.__name__: rule(spec, task) for rule in model_conformance.RULES}
    assert {rule: problem for rule, problem in found.items() if problem} == {}


# ---------------------------------------------------------------- plants

PLANTS = []


def plant(rule, task=TOKENS):
    """Note a defective network, or specification, and the rule that it breaks."""

    def noted(cls):
        PLANTS.append(pytest.param(rule, cls, task, id=f"{rule}-{cls.__name__}"))
        return cls

    return noted


def planted(cls):
    """Return a registered specification that has the defect."""
    if issubclass(cls, MLP):
        spec_class = cls
    else:

        def build(self, task, stream):
            return cls(self, task, stream)

        spec_class = type(cls.__name__, (MLP,), {"build": build, "__module__": __name__})
        spec_class = dataclass(frozen=True)(spec_class)
    return registry.register("models", "planted")(spec_class)(width=8, depth=2)


@pytest.mark.parametrize("task", [TOKENS, REALS, HEADED], ids=lambda task: type(task).__name__)
def test_an_undamaged_copy_passes(task):
    """The plants below differ from this by their defect alone."""

    class Copy(MLPNetwork):
        pass

    check_model(planted(Copy), task)


class Changed(MLPNetwork):
    """A network whose outputs, or view of the inputs, go through a change."""

    def forward(self, inputs, columns=None, tap=NO_TAP):
        return self.change(super().forward(inputs, columns, tap), tap)

    def change(self, outputs, tap):
        return outputs

    def look(self, inputs, start, before, side, tap):
        x, state = super().look(inputs, start, before, side, tap)
        return self.view(x), state

    def view(self, x):
        return x


@plant("outputs_are_shaped_as_said")
class OneOutcomeShort(Changed):
    def change(self, outputs, tap):
        return outputs[..., 1:]


@plant("outputs_are_shaped_as_said")
class OutputsInHalfPrecision(Changed):
    def change(self, outputs, tap):
        return outputs.half()


@plant("outputs_are_shaped_as_said", REALS)
class NoNumbers(Changed):
    def change(self, outputs, tap):
        return torch.where(outputs == outputs.max(), torch.nan, outputs)


@plant("causal")
class KnowsTheEnd(Changed):
    def view(self, x):
        return x + 0.01 * x[:, -1:]


@plant("causal", REALS)
class SeesOneAhead(Changed):
    def view(self, x):
        return x + 0.01 * x.roll(-1, dims=1)


@plant("causal", HEADED)
class SeesOneAheadAtTheEndOnly(Changed):
    def view(self, x):
        ahead = torch.zeros_like(x)
        ahead[:, -2] = x[:, -1]
        return x + 0.01 * ahead


@plant("sequences_do_not_see_each_other")
class NormalisesOverTheBatch(Changed):
    def view(self, x):
        return x - x.mean(dim=0)


@plant("columns_are_the_same_numbers")
class IgnoresColumns(Changed):
    def forward(self, inputs, columns=None, tap=NO_TAP):
        return super().forward(inputs, None, tap)


@plant("columns_are_the_same_numbers")
class SortsColumns(Changed):
    def forward(self, inputs, columns=None, tap=NO_TAP):
        return super().forward(inputs, None if columns is None else sorted(columns), tap)


class Streams(MLPNetwork):
    """A network with a recurrent form of its own."""

    def stream(self, header):
        return self.form(self, header)


@plant("parallel_and_recurrent_forms_agree")
class Forgets(Streams):
    class form(_MLPStreaming):
        def __call__(self, inputs):
            self._sum = None
            return super().__call__(inputs)


@plant("parallel_and_recurrent_forms_agree", HEADED)
class OverlooksTheHeader(Streams):
    def form(self, network, header):
        return _MLPStreaming(network, header[:, :0])


@plant("parallel_and_recurrent_forms_agree")
class RefusesToStream(MLPNetwork):
    def stream(self, header):
        raise InvalidInput("it would rather not, whatever it declares")


@plant("parallel_and_recurrent_forms_agree", HEADED)
class RefusesWithoutAReason(MLPNetwork):
    recurrent = False
    stream = Network.stream


@plant("parallel_and_recurrent_forms_agree", REALS)
class StreamsAfterAll(MLPNetwork):
    recurrent = False


@plant("the_same_in_double_precision")
class OutputsInSinglePrecision(Changed):
    def change(self, outputs, tap):
        return outputs.float()


@plant("the_same_in_double_precision")
class AnotherFunctionInDoublePrecision(Changed):
    def change(self, outputs, tap):
        return outputs + 0.01 if outputs.dtype == torch.float64 else outputs


class Lists(MLPNetwork):
    """A network that lists its points in a way of its own."""

    def points(self):
        return tuple(self.listed(list(super().points())))


@plant("points_are_passed_as_listed")
class PassesMoreThanItLists(Lists):
    def listed(self, points):
        return points[1:]


@plant("points_are_passed_as_listed")
class ListsMoreThanItPasses(Lists):
    def listed(self, points):
        return [*points, Point("router", "there is none", "batch time width")]


@plant("points_are_passed_as_listed")
class ListsTwice(Lists):
    def listed(self, points):
        return [points[0], *points]


@plant("points_are_passed_as_listed")
class ListsInAnotherOrder(Lists):
    def listed(self, points):
        return points[::-1]


@plant("points_are_passed_as_listed")
class MiscountsAxes(Lists):
    def listed(self, points):
        return [replace(points[0], shape="batch heads time width"), *points[1:]]


@plant("reading_changes_nothing")
class OtherArithmeticWhenRead(Changed):
    def change(self, outputs, tap):
        return outputs + 1e-3 * tap.wants("layers.1.mlp_out")


@plant("reading_changes_nothing")
class RecordsUnasked(MLPNetwork):
    def run(self, inputs, names=(), edits=None, **more):
        return super().run(inputs, [*names, "embed"], edits, **more)


@plant("every_point_is_live")
class DropsEdits(MLPNetwork):
    """A value is shown, and the run goes on with the one from before."""

    def read(self, x, tap):
        tap("final_norm", self.final_norm(x))
        return super().read(x, _Without(tap, "final_norm"))


class _Without:
    active = True

    def __init__(self, tap, name):
        self.tap, self.name = tap, name

    def wants(self, name):
        return name != self.name and self.tap.wants(name)

    def __call__(self, name, value):
        return value if name == self.name else self.tap(name, value)


@plant("every_point_is_live")
class BarelyAlive(MLPNetwork):
    """What is edited arrives, a billion times smaller."""

    def read(self, x, tap):
        faint = 1e-9 * tap("final_norm", self.final_norm(x)).sum()
        return super().read(x, _Without(tap, "final_norm")) + faint


@plant("parameters_are_counted")
@dataclass(frozen=True)
class Miscounts(MLP):
    def parameters(self, task):
        return super().parameters(task) + 1


class Starts(MLPNetwork):
    """A network with one more vector, made in a way of its own."""

    def __init__(self, spec, task, stream):
        super().__init__(spec, task, stream)
        self.final_norm.weight = torch.nn.Parameter(self.vector(spec.width))


@plant("the_same_stream_gives_the_same_bits")
class DrawsFromTheGlobalGenerator(Starts):
    def vector(self, width):
        return torch.rand(width)


@plant("the_same_stream_gives_the_same_bits")
class DrawsFromNowhere(Starts):
    def vector(self, width):
        generator = torch.Generator()
        generator.seed()
        return torch.rand(width, generator=generator)


@plant("the_same_stream_gives_the_same_bits")
class SameForEveryStream(MLPNetwork):
    def __init__(self, spec, task, stream):
        super().__init__(spec, task, Stream(0, "initial"))


@plant("gradients_reach_every_parameter")
class UnusedParameter(MLPNetwork):
    def __init__(self, spec, task, stream):
        super().__init__(spec, task, stream)
        self.unused = torch.nn.Parameter(torch.ones(3))


@plant("gradients_reach_every_parameter", REALS)
class LetsNoGradientIntoTheEmbedding(Changed):
    def view(self, x):
        return x.detach()


@plant("survives_a_config_file")
@dataclass(frozen=True)
class ChangesWhenRead(MLP):
    def __post_init__(self):
        object.__setattr__(self, "depth", self.depth + 1)


@plant("survives_a_config_file")
@dataclass(frozen=True)
class HiddenSetting(MLP):
    noise: float = field(default=0.0, init=False)

    def __post_init__(self):
        object.__setattr__(self, "noise", 0.5 if self.depth == 2 else 0.0)
        object.__setattr__(self, "depth", 3)


@plant("survives_a_checkpoint")
class KeepsAVectorToItself(Changed):
    def __init__(self, spec, task, stream):
        super().__init__(spec, task, stream)
        self.own = [torch.as_tensor(stream.normals(0, 1, 8, "own")).float()]

    def view(self, x):
        return x + self.own[0].to(x.dtype)


@plant("training_resumes_to_the_same_bits")
class CountsItsPasses(Changed):
    """In training it does something else at every pass, and the count is in no checkpoint."""

    passes = 0

    def view(self, x):
        self.passes += self.training
        return x + 0.01 * self.passes


# ---------------------------------------------------------------- what they show


@pytest.mark.parametrize(("rule", "cls", "task"), PLANTS)
def test_its_rule_and_the_whole_check_catch_a_plant(rule, cls, task):
    spec = planted(cls)
    try:
        problem = getattr(model_conformance, rule)(spec, task)
    except BeliefspaceError as error:
        problem = str(error)
    assert isinstance(problem, str)
    assert problem.strip()
    with pytest.raises(ConformanceError) as refusal:
        check_model(spec, task)
    message = str(refusal.value)
    assert cls.__name__ in message
    assert any(r.__name__.replace("_", " ") in message for r in model_conformance.RULES)


def test_every_rule_has_a_plant():
    assert {p.values[0] for p in PLANTS} == {rule.__name__ for rule in model_conformance.RULES}


def test_the_message_says_which_model_which_task_which_rule_and_how():
    with pytest.raises(ConformanceError) as refusal:
        check_model(planted(KnowsTheEnd), TOKENS)
    message = str(refusal.value)
    assert re.search(r"KnowsTheEnd\(.*width=8.* on Bijection\(.*: causal: \S", message)
