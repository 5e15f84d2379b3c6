"""Three models written elsewhere as runners: GPT-2, torch's encoder, torch's LSTM.

Each is the example of docs/wrap.md, run as it stands there.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from beliefspace.core.errors import BeliefspaceError
from beliefspace.core.streams import Stream
from beliefspace.core.wrap import At, wrap
from beliefspace.windtunnel.calibration import score

torch = pytest.importorskip("torch")

PAGE = (Path(__file__).parents[2] / "docs" / "wrap.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
GPT2, ENCODER, LSTM = EXAMPLES


@cache
def example(source):
    """Run an example, make its weights large enough to matter, and return what it made."""
    made = {}
    state = torch.get_rng_state()
    try:
        torch.manual_seed(0)
        exec(compile(source, "docs/wrap.md", "exec"), made)
    finally:
        torch.set_rng_state(state)
    module = made["runner"]._module
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return made


@pytest.fixture(params=["gpt2", "encoder", "lstm"])
def made(request):
    if request.param == "gpt2":
        pytest.importorskip("transformers")
    return example({"gpt2": GPT2, "encoder": ENCODER, "lstm": LSTM}[request.param])


def inputs_of(made, sequences=5):
    return made["task"].batch(sequences, Stream(2, "inputs")).inputs


def by_hand(module, place, inputs):
    """Read a place with a hook of our own."""
    place = place if isinstance(place, At) else At(*([place] if isinstance(place, str) else place))
    part, seen = module.get_submodule(place.path), []

    def on_output(_part, _given, output):
        seen.append(output)

    def on_input(_part, given, named):
        seen.append(given[0] if given else next(iter(named.values())))

    handle = (
        part.register_forward_pre_hook(on_input, with_kwargs=True)
        if place.side == "input"
        else part.register_forward_hook(on_output)
    )
    with torch.no_grad():
        module.eval()(torch.as_tensor(inputs))
    handle.remove()
    (value,) = seen
    for key in place.keys:
        value = value[key]
    return value if place.slice is None else value[..., place.slice]


def test_what_is_recorded_is_what_a_hook_sees(made):
    inputs, runner = inputs_of(made), made["runner"]
    trace = runner.record(inputs, ["*"])
    assert set(trace) == set(made["places"])
    for name, place in made["places"].items():
        torch.testing.assert_close(trace[name], by_hand(runner._module, place, inputs))


def test_every_point_is_live_and_reading_changes_nothing(made):
    inputs, runner = inputs_of(made), made["runner"]
    plain = runner(inputs)
    for name in made["places"]:
        outputs, trace = runner.run(inputs, [name])
        torch.testing.assert_close(outputs, plain)

        def edit(value):
            return 1.5 * value + torch.linspace(-1, 1, value.shape[-1])

        moved, edited = runner.edit({name: edit}).run(inputs, [name])
        assert (moved - plain).abs().max() > 1e-3, name
        torch.testing.assert_close(edited[name], edit(trace[name]))
    assert torch.equal(runner(inputs), plain)


def test_it_is_scored_and_left_in_the_mode_it_was_in(made):
    module, runner = made["runner"]._module.train(), made["runner"]
    result = score(runner, made["task"], sequences=32)
    assert 0 < result.kl_bits.mean < 50
    assert module.training
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    if made["task"].prefix:
        assert result.memory is not None


def test_gpt2_attention_is_a_distribution_over_the_past():
    pytest.importorskip("transformers")
    made = example(GPT2)
    attention = made["runner"].record(inputs_of(made), ["layers.0.attention"])["layers.0.attention"]
    torch.testing.assert_close(attention.sum(dim=-1), torch.ones(attention.shape[:-1]))
    assert not attention.triu(1).any()


def test_gpt2_values_and_attention_make_the_head_outputs():
    pytest.importorskip("transformers")
    made = example(GPT2)
    names = [f"layers.1.{name}" for name in ("queries", "keys", "values", "attention")]
    trace = made["runner"].record(inputs_of(made), [*names, "layers.1.head_outputs"])
    q, k, v = (trace[name].unflatten(2, (2, 8)).transpose(1, 2) for name in names[:3])
    scores = q @ k.mT * 8**-0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    attention = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
    torch.testing.assert_close(trace[names[3]], attention)
    mixed = (attention @ v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(trace["layers.1.head_outputs"], mixed)


@pytest.mark.parametrize("name", ["layers.0.mlp_out", None])
def test_an_encoder_layer_leaves_the_fast_path_only_where_a_point_is_asked_for(name, monkeypatch):
    made, taken = example(ENCODER), []
    fast = torch._transformer_encoder_layer_fwd

    def counted(*arguments):
        taken.append(1)
        return fast(*arguments)

    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", counted)
    made["runner"].run(inputs_of(made), [] if name is None else [name])
    assert len(taken) == (2 if name is None else 1)


def test_what_a_fused_part_does_not_call_is_said_not_to_have_been_passed():
    made = example(ENCODER)
    module = made["runner"]._module
    runner = wrap(module, {"heads": "encoder.layers.0.self_attn.out_proj"})
    with pytest.raises(BeliefspaceError, match="'heads' was asked for, but the run did not pass"):
        runner.run(inputs_of(made), ["heads"])


def test_an_edited_output_of_an_lstm_reaches_what_reads_it_and_no_later_step():
    made = example(LSTM)
    inputs, runner = inputs_of(made), made["runner"]

    def lift_the_first(value):
        value[:, 0] += 1
        return value

    plain = runner(inputs)
    top = runner.edit({"layers.1.mixer_out": lift_the_first})(inputs)
    assert not torch.allclose(top[:, 0], plain[:, 0])
    assert torch.equal(top[:, 1:], plain[:, 1:])
    # One layer below, the layer above carries it on.
    below = runner.edit({"layers.0.mixer_out": lift_the_first})(inputs)
    assert (below[:, 1] - plain[:, 1]).abs().max() > 1e-3


def test_a_bare_lstm_is_a_runner_too():
    lstm = torch.nn.LSTM(3, 4, batch_first=True)
    runner = wrap(lstm, {"mixer_out": At("", index=0)}, outputs=lambda result: result[0])
    x = torch.linspace(-1, 1, 30).view(2, 5, 3)
    assert torch.equal(runner.record(x, ["mixer_out"])["mixer_out"], runner(x))
    assert not torch.equal(runner.edit({"mixer_out": torch.zeros_like})(x), runner(x))
