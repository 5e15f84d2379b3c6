"""Parts that are set by hand: attention that rests, slots of a residual, and nothing to train."""

from __future__ import annotations

import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.models.bag_of_values import BagOfValues
from beliefspace.windtunnel.models.exact_filter import ExactFilter
from beliefspace.windtunnel.models.exact_recall import ExactRecall
from beliefspace.windtunnel.recipe import Recipe, Schedule
from beliefspace.windtunnel.tasks.bijection import Bijection
from beliefspace.windtunnel.tasks.hmm import HMM

torch = pytest.importorskip("torch")

from beliefspace.core.taps import NO_TAP, Recorder  # noqa: E402
from beliefspace.windtunnel.networks.hand_set import (  # noqa: E402
    Content,
    SetAttention,
    Slots,
    look_back,
)
from beliefspace.windtunnel.networks.positions import Sight  # noqa: E402
from beliefspace.windtunnel.training import train  # noqa: E402

STREAM = Stream(0, "initial")
BUILT = [
    (BagOfValues(), Bijection(4)),
    (ExactRecall(), Bijection(4)),
    (ExactRecall("recurrent"), Bijection(4)),
    (ExactFilter(), HMM(2, 2, 3)),
    (ExactFilter("transformer"), HMM(2, 2, 3)),
]


@pytest.mark.parametrize(("spec", "task"), BUILT, ids=str)
def test_all_weights_are_shown_and_none_is_trained(spec, task, tmp_path):
    network = spec.build(task, STREAM)
    assert spec.parameters(task) == sum(p.numel() for p in network.parameters()) > 0
    assert not any(p.requires_grad for p in network.parameters())
    assert not list(network.buffers())
    with pytest.raises(InvalidInput):
        train(Recipe(task, spec, schedule=Schedule("2 steps")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_slot_is_written_and_read_where_it_is():
    slots = Slots({"first": 2, "second": 1, "third": 3})
    value = torch.arange(6.0).view(2, 3)
    x = slots.written("third", value)
    assert (slots.width, x.shape) == (6, (2, 6))
    assert torch.equal(slots.read(x, "third"), value)
    assert torch.equal(x @ slots.reader("third").T, value)
    assert not x[:, :3].any()


def test_a_head_that_looks_back_rests_where_there_is_nothing():
    one = torch.eye(1)[None]
    attention = SetAttention(look_back(2, 80.0), one, one, 40.0)
    x = torch.tensor([[[1.0], [2.0], [3.0], [4.0], [5.0]]])
    sight = Sight(5, 0, None, None, x.device)
    added = attention(x, sight, NO_TAP)
    torch.testing.assert_close(added.flatten(), torch.tensor([0.0, 0.0, 1.0, 2.0, 3.0]))


def test_a_head_that_looks_for_content_shares_itself_out_or_rests():
    """Each position looks for its own kind; the third has none."""
    eye = torch.eye(2)[None]
    attention = SetAttention(Content(80 * eye, torch.zeros(1, 2), eye), eye, eye, 40.0)
    x = torch.eye(2)[None, [0, 1, 0, 0]]
    x[0, 2] = 0.0
    recorder = Recorder(["attention"])
    attention(x, Sight(4, 0, None, None, x.device), recorder)
    expected = [[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0.5, 0, 0, 0.5]]
    torch.testing.assert_close(recorder.values["attention"][0, 0], torch.tensor(expected))


def test_the_points_of_a_layer_are_those_it_passes():
    eye = torch.eye(2)[None]
    for find in (Content(eye, torch.zeros(1, 2), eye), look_back(1, 5.0)):
        attention = SetAttention(find, eye, eye, 1.0)
        names = [point.name for point in attention.points()]
        recorder = Recorder(names)
        attention(torch.ones(1, 3, 2), Sight(3, 0, None, None, torch.device("cpu")), recorder)
        recorder.finish()
        assert list(recorder.values) == names
