"""The mixer of the gated delta rule (2412.06464); its settings: ``models/gated_delta.py``.

    q, k, v = silu(convolution(maps of the input)), q and k of length 1
    Δ_t = softplus(map + bias),  α_t = exp(-A Δ_t)          β_t = sigmoid(map)
    S_t = α_t (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ     (equation 10, transposed)
    output = W (norm(S_tᵀ q_t) ⊙ silu(gate))

The second line writes the correction u_t = β_t (v_t - α_t S_{t-1}ᵀ k_t) under the key k_t, so it is
the plain recurrence of ``ssd.py``, S_t = α_t S_{t-1} + k_t u_tᵀ. Corrections depend on earlier ones
linearly; those of a chunk, which starts from the state S, solve a triangular system (section 3.3):

    (I + M) u = β (v - e^c k S),    M_ts = β_t (k_t·k_s) e^{c_t - c_s} for s < t,    c = Σ log α

Symbols:
    n     sequences
    T     positions
    h     heads
    p     head width
    α     decay                          ``[n h T]``
    β     rate of correction             ``[n h T]``
    u     corrections                    ``[n h T p]``
    S     state                          ``[n h p p]``
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from beliefspace.core.taps import NO_TAP, Tap
from beliefspace.core.trace import Point
from beliefspace.windtunnel.models.gated_delta import GatedDelta
from beliefspace.windtunnel.networks.base import Initializer
from beliefspace.windtunnel.networks.convolution import CausalConvolution
from beliefspace.windtunnel.networks.mamba2 import rates, step_bias
from beliefspace.windtunnel.networks.ssd import Decay, advance, mix, read, states
from beliefspace.windtunnel.networks.stack import Mixer, State

UNIT_EPSILON = 1e-6
NORM_EPSILON = 1e-5


class GatedDeltaMixer(Mixer):
    """See :class:`beliefspace.windtunnel.models.gated_delta.GatedDelta`.

    Args:
        spec: the settings.
        make: draws the initial values.
        gain: of the output map.
    """

    def __init__(self, spec: GatedDelta, make: Initializer, gain: float) -> None:
        super().__init__(spec, make, gain)
        width, heads = spec.width, spec.head_count
        self.spec = spec
        self.queries = make.linear(width, width)
        self.keys = make.linear(width, width)
        self.values = make.linear(width, width)
        self.gate = make.linear(width, width)
        self.input_gate = make.linear(width, heads)
        self.step_size = make.linear(width, heads)
        self.convolution = CausalConvolution(3 * width, spec.convolution, make)
        self.log_rate = nn.Parameter(rates(heads).log())
        self.step_bias = nn.Parameter(step_bias(heads))
        self.gain = nn.Parameter(torch.ones(spec.head_width))
        self.output = make.linear(width, width, gain=gain)

    def forward(self, x: Float[Tensor, "n T width"], tap: Tap) -> Float[Tensor, "n T width"]:
        """Return what the mixer adds to the residual at every position."""
        mixed, gate, scalars = self._project(x)
        q, k, v = self._parts(F.silu(self.convolution(mixed)), tap)
        log_decay, rate = self._scalars(scalars, tap)
        decay = Decay.of(log_decay, self.spec.chunk)
        u = corrections(v, k, rate, decay)
        if tap.wants("state"):
            y = read(tap("state", states(u, k, log_decay)), q)
        else:
            y = mix(u, k, q, decay)
        return self._finish(y, gate, tap)

    def start(self, x: Float[Tensor, "n width"]) -> State:
        """Return an empty state."""
        heads, width = self.spec.head_count, self.spec.head_width
        mixed, _, _ = self._project(x[:, None])
        return {
            "past": self.convolution.start(mixed[:, 0]),
            "state": x.new_zeros(len(x), heads, width, width),
        }

    def step(
        self, x: Float[Tensor, "n width"], state: State
    ) -> tuple[Float[Tensor, "n width"], State]:
        """Return what is added at one position, and the state after it."""
        mixed, gate, scalars = self._project(x[:, None])
        mixed, past = self.convolution.step(mixed[:, 0], state["past"])
        q, k, v = (part[:, :, 0] for part in self._parts(F.silu(mixed)[:, None], NO_TAP))
        log_decay, rate = (part[:, :, 0] for part in self._scalars(scalars, NO_TAP))
        recalled = read(state["state"], k) * log_decay.exp()[..., None]
        after = advance(state["state"], rate[..., None] * (v - recalled), k, log_decay)
        added = self._finish(read(after, q)[:, :, None], gate, NO_TAP)
        return added[:, 0], {"past": past, "state": after}

    @classmethod
    def points(cls, spec: GatedDelta) -> tuple[Point, ...]:
        """Return the mixer's own points."""
        heads, scalars = "batch heads time head_width", "batch heads time"
        return (
            Point("queries", "queries, after convolution, of length 1", heads),
            Point("keys", "keys, after convolution, of length 1", heads),
            Point("values", "values, after convolution", heads),
            Point("step_size", "Δ: the state decays by exp(-A Δ) at a position", scalars),
            Point("input_gate", "β: how much of what a key held is overwritten", scalars),
            Point(
                "state",
                "state after each position, where it is read (an edit is not carried on)",
                "batch heads time head_width head_width",
            ),
            Point("output_gate", "silu of the gate on what is read", heads),
            Point("head_outputs", "what is read, normalised and gated", heads),
        )

    def _project(self, x: Float[Tensor, "n T width"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return what goes through the convolution, the gate, and β and Δ raw, by one product."""
        maps = (
            self.queries, self.keys, self.values, self.gate, self.input_gate, self.step_size,
        )  # fmt: skip
        projected = F.linear(x, torch.cat([part.weight for part in maps]))
        width, heads = self.spec.width, self.spec.head_count
        mixed, gate, scalars = projected.split((3 * width, width, 2 * heads), dim=-1)
        return mixed, gate, scalars

    def _parts(
        self, mixed: Float[Tensor, "n T channels"], tap: Tap
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values by heads."""
        q, k, v = (self._split(part) for part in mixed.chunk(3, dim=-1))
        q = tap("queries", _unit(q))
        k = tap("keys", _unit(k))
        return q, k, tap("values", v)

    def _scalars(self, raw: Float[Tensor, "n T both"], tap: Tap) -> tuple[Tensor, Tensor]:
        """Return the log decay and the rate of correction."""
        rate, step = raw.transpose(1, 2).chunk(2, dim=1)
        step = tap("step_size", F.softplus(step + self.step_bias[:, None]))
        return -self.log_rate.exp()[:, None] * step, tap("input_gate", rate.sigmoid())

    def _finish(
        self, y: Float[Tensor, "n h T p"], gate: Float[Tensor, "n T width"], tap: Tap
    ) -> Float[Tensor, "n T width"]:
        """Normalise what is read, gate it, and map."""
        opened = tap("output_gate", F.silu(self._split(gate)))
        # The published code scales queries by 1/√p before a norm with this ε; here ε is scaled.
        width = self.spec.head_width
        normed = F.rms_norm(y, (width,), self.gain, eps=NORM_EPSILON * width)
        mixed = tap("head_outputs", normed * opened)
        added: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return added

    def _split(self, x: Float[Tensor, "n T width"]) -> Float[Tensor, "n h T p"]:
        return x.view(*x.shape[:2], -1, self.spec.head_width).transpose(1, 2)


def _unit(x: Float[Tensor, "n h T p"]) -> Float[Tensor, "n h T p"]:
    return x * (x.square().sum(-1, keepdim=True) + UNIT_EPSILON).rsqrt()


def corrections(
    values: Float[Tensor, "n h T p"],
    keys: Float[Tensor, "n h T p"],
    rate: Float[Tensor, "n h T"],
    decay: Decay,
) -> Float[Tensor, "n h T p"]:
    """Return u of the recurrence: what each position writes under its key."""
    v, k, b = decay.cut(values), decay.cut(keys), decay.cut(rate[..., None])
    scaled = b * k
    system = scaled @ k.mT * decay.within
    targets = b * v
    if decay.several:
        targets = torch.cat((targets, scaled * decay.since_start), dim=-1)
    # Only what lies below the diagonal is read; the diagonal is taken for 1.
    u: Tensor = torch.linalg.solve_triangular(system, targets, upper=False, unitriangular=True)
    if decay.several:
        own, of_state = u.split((v.shape[-1], k.shape[-1]), dim=-1)
        u = _chained(own, of_state, (k * decay.to_end).mT, decay)
    return u.flatten(2, 3)[:, :, : values.shape[2]]


def _chained(
    own: Float[Tensor, "n h C c p"],
    of_state: Float[Tensor, "n h C c p"],
    written: Float[Tensor, "n h C p c"],
    decay: Decay,
) -> Float[Tensor, "n h C c p"]:
    """Subtract from each chunk's corrections what the state before it recalls."""
    state = own.new_zeros(*own.shape[:2], written.shape[3], own.shape[4])
    chunks = []
    parts = (part.unbind(2) for part in (own, of_state, written, decay.across))
    for alone, recall, write, left in zip(*parts, strict=True):
        u = alone - recall @ state
        state = state * left + write @ u
        chunks.append(u)
    return torch.stack(chunks, dim=2)
