"""The optimizers' arithmetic, against a singular value decomposition and against torch's AdamW."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beliefspace.core.errors import CorruptFile, InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.optimizers import AdamW, Muon, OptimizerSpec
from beliefspace.windtunnel.tasks.bijection import Bijection

torch = pytest.importorskip("torch")
from beliefspace.windtunnel.optimization import optimization  # noqa: E402

SHAPES = [(4, 6), (6, 4), (6, 6), (4, 6), (1, 5), (5, 1)]
BOTH = pytest.mark.parametrize("spec", [Muon(), AdamW()], ids=["muon", "adamw"])


class Layers(torch.nn.Module):
    """One linear map in each layer, and a table, a bias and a head outside Muon's reach."""

    def __init__(self, shapes=SHAPES, dtype=torch.float32):
        super().__init__()
        self.table = torch.nn.Parameter(torch.zeros(7, 3))
        self.layers = torch.nn.ModuleList(torch.nn.Linear(c, r, bias=False) for r, c in shapes)
        self.layers[0].distances = torch.nn.Parameter(torch.zeros(2, 9))
        self.layers[0].gain = torch.nn.Parameter(torch.zeros(4))
        self.head = torch.nn.Linear(3, 2)
        self.to(dtype)
        generator = np.random.default_rng(0)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.from_numpy(generator.normal(size=parameter.shape)))


def give_gradients(network, step):
    generator = np.random.default_rng(1 + step)
    for parameter in network.parameters():
        gradient = torch.from_numpy(generator.normal(size=parameter.shape))
        parameter.grad = gradient.to(parameter.dtype) if parameter.requires_grad else None


def values(network):
    return {name: p.detach().numpy().copy() for name, p in network.named_parameters()}


def quintic(matrix, iterations):
    """The Newton-Schulz steps, one matrix at a time: an odd polynomial of its singular values."""
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    s = s / np.linalg.norm(matrix)
    for _ in range(iterations):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u * s @ vt


@pytest.mark.parametrize(("momentum", "iterations"), [(0.95, 5), (0.0, 1), (0.5, 3)])
def test_a_muon_step_is_the_plain_one_of_each_matrix(momentum, iterations):
    network = Layers()
    muon = optimization(Muon(0.1, momentum, iterations), network)
    average = [np.zeros(shape) for shape in SHAPES]
    expected = [
        values(network)[f"layers.{i}.weight"].astype(np.float64) for i in range(len(SHAPES))
    ]
    for step, rate in enumerate([1.0, 0.5, 0.25]):
        give_gradients(network, step)
        for i, (rows, columns) in enumerate(SHAPES):
            gradient = network.layers[i].weight.grad.numpy().astype(np.float64)
            average[i] = momentum * average[i] + (1 - momentum) * gradient
            ahead = momentum * average[i] + (1 - momentum) * gradient
            scale = np.sqrt(rows / columns) if rows > columns else 1.0
            expected[i] = expected[i] - 0.1 * rate * scale * quintic(ahead, iterations)
        muon.step(rate)
        for i in range(len(SHAPES)):
            found = network.layers[i].weight.detach().numpy()
            np.testing.assert_allclose(found, expected[i], atol=2e-5)


@settings(max_examples=30)
@given(
    shape=st.sampled_from([(3, 3), (2, 8), (8, 2), (1, 4), (16, 16)]),
    smallest=st.floats(0.01, 1.0),
    size=st.sampled_from([1e-4, 1.0, 1e4]),
    seed=st.integers(0, 10**6),
)
def test_a_muon_update_has_singular_values_about_one_and_the_gradients_vectors(
    shape, smallest, size, seed
):
    generator = np.random.default_rng(seed)
    u, _, vt = np.linalg.svd(generator.normal(size=shape), full_matrices=False)
    gradient = size * (u * np.geomspace(1.0, smallest, min(shape))) @ vt
    network = Layers([shape])
    before = values(network)["layers.0.weight"]
    muon = optimization(Muon(learning_rate=1.0), network)
    network.layers[0].weight.grad = torch.from_numpy(gradient).float()
    muon.step(1.0)
    update = (before - values(network)["layers.0.weight"]) / max(1.0, shape[0] / shape[1]) ** 0.5
    assert np.all(np.linalg.svd(update, compute_uv=False) > 0.65)
    assert np.all(np.linalg.svd(update, compute_uv=False) < 1.25)
    # In the gradient's own singular bases the update is diagonal.
    inside = u.T @ update @ vt.T
    np.testing.assert_allclose(inside, np.diag(np.diag(inside)), atol=1e-3)
    assert np.all(np.diag(inside) > 0)


def test_matrices_grouped_by_shape_move_as_each_would_alone():
    together = Layers()
    muon = optimization(Muon(), together)
    before = values(together)
    for step in range(3):
        give_gradients(together, step)
        muon.step(1.0)
    for i, shape in enumerate(SHAPES):
        alone = Layers([shape])
        with torch.no_grad():
            alone.layers[0].weight.copy_(torch.from_numpy(before[f"layers.{i}.weight"]))
        other = Layers()
        muon = optimization(Muon(), alone)
        for step in range(3):
            give_gradients(other, step)
            alone.layers[0].weight.grad = other.layers[i].weight.grad
            muon.step(1.0)
        found = together.layers[i].weight.detach().numpy()
        np.testing.assert_allclose(found, alone.layers[0].weight.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("muon", [True, False])
def test_adamw_is_torchs(muon):
    network, reference = Layers(dtype=torch.float64), Layers(dtype=torch.float64)
    settings = AdamW(0.01, betas=(0.8, 0.9), weight_decay=0.1, epsilon=1e-3)
    mine = optimization(Muon(rest=settings) if muon else settings, network)
    theirs = torch.optim.AdamW(
        reference.parameters(), betas=(0.8, 0.9), weight_decay=0.1, eps=1e-3, foreach=False
    )
    for step, rate in enumerate([0.5, 1.0, 0.25]):
        give_gradients(network, step)
        give_gradients(reference, step)
        theirs.param_groups[0]["lr"] = 0.01 * rate
        mine.step(rate)
        theirs.step()
    expected = values(reference)
    for name, found in values(network).items():
        if not (muon and name.startswith("layers.") and name.endswith("weight")):
            np.testing.assert_allclose(found, expected[name], rtol=1e-12, err_msg=name)


@BOTH
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_state_that_went_through_numpy_goes_on_with_the_same_bits(spec, steps):
    network = Layers()
    whole = optimization(spec, network)
    for step in range(steps):
        give_gradients(network, step)
        whole.step(0.5)
    saved = {name: value.numpy().copy() for name, value in whole.state().items()}
    again = copy.deepcopy(network)
    resumed = optimization(spec, again)
    resumed.load({name: torch.from_numpy(array) for name, array in saved.items()})
    for one, other in ((network, whole), (again, resumed)):
        for step in range(steps, steps + 3):
            give_gradients(one, step)
            other.step(0.5)
    assert {n: a.tobytes() for n, a in values(network).items()} == {
        n: a.tobytes() for n, a in values(again).items()
    }
    ends = [{n: v.numpy().tobytes() for n, v in o.state().items()} for o in (whole, resumed)]
    assert ends[0] == ends[1]


@BOTH
def test_a_loaded_state_is_a_copy(spec):
    network, again = Layers(), Layers()
    one, other = optimization(spec, network), optimization(spec, again)
    other.load(one.state())
    before = {name: value.clone() for name, value in other.state().items()}
    give_gradients(network, 0)
    one.step(1.0)
    assert all(torch.equal(before[name], value) for name, value in other.state().items())


@BOTH
def test_a_state_that_lacks_something_is_refused(spec):
    optimizer = optimization(spec, Layers())
    state = optimizer.state()
    for name in state:
        with pytest.raises(CorruptFile, match=f"the checkpoint lacks {name}"):
            optimizer.load({key: value for key, value in state.items() if key != name})


@BOTH
def test_a_zero_gradient_moves_nothing(spec):
    network = Layers()
    before = values(network)
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimization(spec, network).step(1.0)
    for name, found in values(network).items():
        np.testing.assert_array_equal(found, before[name])


def test_for_muon_an_absent_gradient_is_a_zero_one():
    absent, zero = Layers(), Layers()
    for network in (absent, zero):
        muon = optimization(Muon(), network)
        give_gradients(network, 0)
        muon.step(1.0)
        after_one = values(network)
        for layer in network.layers:
            layer.weight.grad = None if network is absent else torch.zeros_like(layer.weight)
        muon.step(1.0)
        assert not np.array_equal(values(network)["layers.0.weight"], after_one["layers.0.weight"])
    for layer, other in zip(absent.layers, zero.layers, strict=True):
        assert torch.equal(layer.weight, other.weight)


@BOTH
def test_frozen_parameters_are_left_alone(spec):
    network = Layers()
    frozen = {"table", "layers.0.weight", "layers.0.gain", "head.bias"}
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name not in frozen)
    before = values(network)
    optimizer = optimization(spec, network)
    give_gradients(network, 0)
    optimizer.step(1.0)
    moved = {n for n, value in values(network).items() if not np.array_equal(value, before[n])}
    assert moved == before.keys() - frozen
    assert not any(name in key for key in optimizer.state() for name in frozen)


def taken(network):
    state = optimization(Muon(), network).state()
    return {name.removeprefix("muon/") for name in state if name.startswith("muon/")}


def test_muon_takes_the_linear_maps_inside_the_layers_and_nothing_else():
    assert taken(Layers()) == {f"layers.{i}.weight" for i in range(len(SHAPES))}


@pytest.mark.parametrize(
    "spec",
    [
        Transformer(width=8, depth=2, heads=2),
        Transformer(width=8, depth=1, positions="relative", biases="all", qk_norm=True),
        Transformer(width=8, depth=1, activation="swiglu", norm="rms", head="tied"),
        Transformer(width=8, depth=2, frozen_attention=True),
    ],
)
def test_muon_takes_the_trained_maps_of_a_transformer(spec):
    network = spec.build(Bijection(4), Stream(0, "initial"))
    trained = {
        f"{path}.weight"
        for path, module in network.named_modules()
        if isinstance(module, torch.nn.Linear) and module.weight.requires_grad
    }
    assert taken(network) == {name for name in trained if not name.startswith("head")}
    every = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    state = optimization(Muon(), network).state()
    rest = {name.split("/")[1] for name in state if name.startswith("adamw/")}
    assert rest == every - taken(network)


def test_settings_without_arithmetic_are_refused():
    class Newton(OptimizerSpec):
        pass

    with pytest.raises(InvalidInput, match="no arithmetic is known for the optimizer Newton"):
        optimization(Newton(), Layers())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdamW(learning_rate=0.0), r"learning_rate .* greater than 0; got 0\.0"),
        (lambda: AdamW(learning_rate=float("nan")), "learning_rate .* greater than 0; got nan"),
        (lambda: AdamW(betas=(0.9, 1.0)), r"betas is at least 0 and less than 1; got 1\.0"),
        (lambda: AdamW(weight_decay=-1.0), r"weight_decay .* at least 0; got -1\.0"),
        (lambda: AdamW(epsilon=-1.0), r"epsilon .* at least 0; got -1\.0"),
        (lambda: Muon(learning_rate=-1.0), r"learning_rate .* greater than 0; got -1\.0"),
        (lambda: Muon(momentum=1.0), r"momentum is at least 0 and less than 1; got 1\.0"),
        (lambda: Muon(iterations=0), "iterations is a whole number of at least 1; got 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()
