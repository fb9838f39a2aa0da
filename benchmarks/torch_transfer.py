"""Does the learning rate of a GPT in PyTorch transfer over width? With a plan, and with one rate for all parameters.

    python benchmarks/torch_transfer.py STUDY

trains a GPT as nanoGPT has it on the source code of Python's standard library, on a CPU. It takes an hour or two on one
core. The study keeps every loss, so the same command resumes. docs/pytorch.md shows what it found.

Two things are tuned at the base width besides the learning rate, since a plan keeps what the base model has. Weights of
hidden layers start with a standard deviation of 1 / √fan-in, not 0.02 as in nanoGPT, and the gain of the last norm
starts at 16, since tied logits start out far too small at width 64: with a gain of 1 the best loss there is 2.40, with
4 it is 2.26, with 16 it is 2.25 and with 64 it is 2.39.
"""

import math
import sys
import sysconfig
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

import widthwise as ww

WIDTHS, BASE_WIDTH = (64, 128, 256, 512), 64
HEAD_DIM, LAYERS, CONTEXT, BATCH, STEPS, WARMUP = 16, 2, 64, 16, 300, 60
GAIN = 16.0


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = self.c_attn(self.ln_1(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for part in qkv)
        x = x + self.attn_proj(scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp_proj(gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(128, width), nn.Embedding(CONTEXT, width)
        self.h = nn.Sequential(*(Block(width) for _ in range(LAYERS)))
        self.ln_f, self.lm_head = nn.LayerNorm(width, bias=False), nn.Linear(width, 128, bias=False)
        self.wte.weight = self.lm_head.weight
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                depth = math.sqrt(2 * LAYERS) if name.endswith("proj.weight") else 1.0
                embedding = name.startswith(("wte", "wpe"))
                nn.init.normal_(parameter, std=0.02 if embedding else parameter.shape[1] ** -0.5 / depth)
        nn.init.constant_(self.ln_f.weight, GAIN)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        return self.lm_head(self.ln_f(self.h(x)))


def read_text() -> torch.Tensor:
    """Return the standard library's modules as ASCII codes."""
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = b"".join(module.read_bytes() for module in modules)
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long().clamp(max=127)


def loss_on(model: nn.Module, text: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    starts = torch.randint(len(text) - CONTEXT, (BATCH,), generator=generator)
    tokens = torch.stack([text[start : start + CONTEXT + 1] for start in starts.tolist()])
    return cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def train(width: int, learning_rate: float, seed: int, *, planned: bool, text: torch.Tensor) -> float:
    """Train with AdamW and a cosine schedule; return the loss on the last 200,000 characters."""
    torch.manual_seed(seed)
    model, generator = GPT(width), torch.Generator().manual_seed(seed)
    if planned:
        plan = ww.torch.plan(GPT, width=width, base_width=BASE_WIDTH, example=torch.zeros(1, CONTEXT, dtype=torch.long))
        groups = plan.groups(plan.init_(model), lr=learning_rate)
    else:
        groups = model.parameters()
    optimizer = torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.0)
    cosine = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / WARMUP, (1 + math.cos(math.pi * max(0, step - WARMUP) / (STEPS - WARMUP))) / 2),
    )
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_on(model, text[:-200_000], generator)
        if not math.isfinite(loss.item()):
            return math.nan
        loss.backward()
        optimizer.step()
        cosine.step()
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        return sum(loss_on(model, text[-200_000:], generator).item() for _ in range(40)) / 40


def main() -> None:
    text = read_text()
    for name, planned in (("plan", True), ("one global rate", False)):
        result = ww.torch.sweep(
            partial(train, planned=planned, text=text),
            widths=WIDTHS,
            learning_rate=2**-7,
            precision=0.06,
            until_verdict=True,
            study=sys.argv[1],
            settings={"rates": name},
        )
        print(name, result, sep="\n")


if __name__ == "__main__":
    main()
