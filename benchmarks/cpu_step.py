"""Training on the CPU: this project's transformer against the same model in PyTorch eager, in one run.

    pip install torch            # any CPU build
    python benchmarks/cpu_step.py

Width 128 and 256, 4 blocks, context 64, batch 16, float32, Adam. Prints tokens per second of both and their ratio; the
medians of several rounds that take turns, since machines are noisy.
"""

import statistics
import time

import jax
import numpy as np
import torch
import torch.nn.functional as F

from widthwise.data import Order, Resident
from widthwise.train import Lanes, Spec, resolve

BLOCKS, CONTEXT, BATCH, VOCABULARY, HEAD = 4, 64, 16, 257, 64
STEPS, ROUNDS = 10, 5


class Block(torch.nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.attention_norm = torch.nn.LayerNorm(width, bias=False)
        self.query, self.key, self.value, self.out = (torch.nn.Linear(width, width, bias=False) for _ in range(4))
        self.mlp_norm = torch.nn.LayerNorm(width, bias=False)
        self.up = torch.nn.Linear(width, 4 * width, bias=False)
        self.down = torch.nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        y = self.attention_norm(x)
        split = (*y.shape[:2], -1, HEAD)
        q, k, v = (layer(y).view(split).transpose(1, 2) for layer in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Model(torch.nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, width)
        self.positions = torch.nn.Embedding(CONTEXT, width)
        self.blocks = torch.nn.ModuleList([Block(width) for _ in range(BLOCKS)])
        self.norm = torch.nn.LayerNorm(width, bias=False)
        self.readout = torch.nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.readout(self.norm(x))


def torch_round(width: int):
    """Return a function that takes some steps."""
    model = Model(width)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    batch = torch.randint(0, VOCABULARY, (BATCH, CONTEXT + 1))

    def steps():
        for _ in range(STEPS):
            optimizer.zero_grad()
            logits = model(batch[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), batch[:, 1:].reshape(-1))
            loss.backward()
            optimizer.step()
        return loss.item()

    return steps


def our_round(width: int):
    """Return a function that takes as many steps."""
    spec = Spec(
        width=width,
        blocks=BLOCKS,
        head_dim=HEAD,
        context=CONTEXT,
        batch=BATCH,
        vocabulary=VOCABULARY,
        data="synthetic",
        steps=10_000,
        dtype="float32",
    )
    run = resolve(spec, vocabulary=VOCABULARY, data={})
    text = np.random.default_rng(0).integers(0, VOCABULARY, 1_000_000).astype(np.uint16)
    order = Order(sequences=len(text) // CONTEXT - 1, batch=BATCH, seed=0)
    batches = Resident(text, order, CONTEXT, VOCABULARY)
    lanes = Lanes(run.program, [run.lane], batches, side_by_side=False)
    states = lanes.start()

    def steps():
        nonlocal states
        states, result = lanes.chunk(states, 0, STEPS)
        return float(result.losses[0, -1])

    return steps


def seconds(function) -> float:
    """Time one round."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    """Print the comparison."""
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, jax {jax.__version__}")
    for width in (128, 256):
        theirs, ours = torch_round(width), our_round(width)
        theirs(), ours()
        times = [(seconds(theirs), seconds(ours)) for _ in range(ROUNDS)]
        slow, fast = (statistics.median(column) for column in zip(*times, strict=True))
        tokens = STEPS * BATCH * CONTEXT
        print(
            f"width {width}: PyTorch eager {tokens / slow:,.0f} tokens/s, Widthwise {tokens / fast:,.0f} tokens/s, "
            f"ratio {slow / fast:.2f}"
        )


if __name__ == "__main__":
    main()
