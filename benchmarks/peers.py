"""The same training step, written by others: a plain loop, and the transformers library.

Both are transformers of the size of one of ours, trained on the same sequences by the usual
language-model loss: the next token, at every position.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from beliefspace.core.streams import Stream
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.tasks.bijection import Bijection

Step = Callable[[int], None]


class PlainBlock(nn.Module):
    """A pre-norm block with biases everywhere and one matrix for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.attention_output = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the residual after the block."""
        rows, length, width = x.shape
        q, k, v = (
            part.view(rows, length, self.heads, -1).transpose(1, 2)
            for part in self.attention(self.attention_norm(x)).split(width, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention_output(mixed.transpose(1, 2).reshape(rows, length, width))
        added: Tensor = self.down(F.gelu(self.up(self.feed_forward_norm(x))))
        return x + added


class PlainTransformer(nn.Module):
    """Token and position tables, blocks, and a head tied to the token table."""

    def __init__(self, vocabulary: int, length: int, size: Transformer) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, size.width)
        self.positions = nn.Embedding(length, size.width)
        self.blocks = nn.Sequential(
            *(PlainBlock(size.width, size.head_count) for _ in range(size.depth))
        )
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits at every position."""
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        logits: Tensor = self.head(
            self.norm(self.blocks(self.tokens(inputs) + self.positions(positions)))
        )
        return logits


def plain(task: Bijection, size: Transformer, batch: int) -> Step:
    """Return the step of a plain loop; the last position predicts the last key's value."""
    model = PlainTransformer(task.inputs.vocabulary, task.length, size)

    def loss(tokens: Tensor) -> Tensor:
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return _step(model, loss, task, batch)


def transformers(
    task: Bijection, size: Transformer, batch: int, activation: str = "gelu_new"
) -> Step:
    """Return the step of ``GPT2LMHeadModel``, which shifts its labels and so scores one fewer.

    Args:
        task: what is learned.
        size: width, depth, heads and feed-forward width.
        batch: sequences.
        activation: "gelu_new", the library's default, composed of eight operations, or "gelu".
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=task.inputs.vocabulary,
        n_positions=task.length,
        n_embd=size.width,
        n_layer=size.depth,
        n_head=size.head_count,
        n_inner=size.hidden_width,
        activation_function=activation,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="sdpa",
    )
    model = GPT2LMHeadModel(config)

    def loss(tokens: Tensor) -> Tensor:
        seen = tokens[:, :-1]
        found: Tensor = model(input_ids=seen, labels=seen).loss
        return found

    return _step(model, loss, task, batch)


def _step(model: nn.Module, loss: Callable[[Tensor], Tensor], task: Bijection, batch: int) -> Step:
    """Draw sequences, take the gradient of the loss, clip it, step, and read the loss."""
    stream = Stream(0, "train")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)

    def step(number: int) -> None:
        drawn = task.batch(batch, stream, number)
        last = drawn.targets[:, -1:] + task.outputs.support[0]
        tokens = torch.cat((torch.from_numpy(drawn.inputs), torch.from_numpy(last)), dim=1)
        value = loss(tokens)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(value)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        value.item()

    return step
