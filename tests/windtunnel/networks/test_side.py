"""Where a header goes in: what is taken for one, at the start of a stream and before a sequence."""

from __future__ import annotations

import re

import numpy as np
import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.models.lstm import LSTM
from beliefspace.windtunnel.models.mlp import MLP
from beliefspace.windtunnel.tasks.bijection import Bijection
from beliefspace.windtunnel.tasks.hmm import HMM

pytest.importorskip("torch")

STREAM = Stream(0, "initial")
HEADED = HMM(2, 2, 3)
P, F = HEADED.prefix, HEADED.inputs.features

model = pytest.mark.parametrize("cls", [LSTM, MLP])
side = pytest.mark.parametrize("side", ["prefix", "inject"])


def built(cls, side, task=HEADED):
    return cls(width=8, depth=1, side=side).build(task, STREAM)


@model
@side
@pytest.mark.parametrize("shape", [(3, P), (3, P - 1, F), (3, P + 1, F), (3, P, F + 1), (3, 0, F)])
def test_a_header_of_another_shape_is_refused(cls, side, shape):
    expected = re.escape(f"the task's header is [n, {P}, {F}]; got {shape}")
    with pytest.raises(InvalidInput, match=expected):
        built(cls, side).stream(np.zeros(shape, np.float32))


@model
@side
def test_the_header_of_the_task_is_taken(cls, side):
    inputs = HEADED.batch(3, STREAM).inputs
    outputs = built(cls, side).stream(inputs[:, :P])(inputs[:, P])
    assert outputs.shape == (3, len(HEADED.outputs.support))


@model
def test_of_tokens_a_header_has_two_axes_and_without_one_no_positions(cls):
    network, tokens = built(cls, "prefix", Bijection(4)), Bijection(4).batch(3, STREAM).inputs
    network.stream(tokens[:, :0])(tokens[:, 0])
    for header in (tokens[:, :1], np.zeros((3, 0, 2))):
        with pytest.raises(InvalidInput, match=r"header is \[n, 0\]; got"):
            network.stream(header)


@model
def test_a_sequence_shorter_than_its_injected_header_is_refused(cls):
    with pytest.raises(InvalidInput, match=re.escape(f"header is [n, {P}, {F}]; got (3, 2, {F})")):
        built(cls, "inject")(HEADED.batch(3, STREAM).inputs[:, :2])
