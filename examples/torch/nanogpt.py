"""A small GPT with a training loop in the style of nanoGPT: tuned at width 32, trained at any width."""

import math

import torch
from torch import nn

import widthwise as ww


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // 16
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.ln_1(x)).unflatten(-1, (3, self.heads, 16)).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(64, width), nn.Embedding(32, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 64, bias=False)
        self.head.weight = self.tokens.weight  # tied: the plan folds the factor of the logits into the norm

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


def train(width: int, learning_rate: float = 1e-2, steps: int = 100) -> float:
    torch.manual_seed(0)
    tokens = (torch.arange(33) * torch.arange(1, 17)[:, None]) % 64  # count in steps of 1, 2, …, 16
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    plan = ww.torch.plan(GPT, width=width, base_width=32, example=inputs)
    model = plan.init_(GPT(width))
    optimizer = torch.optim.AdamW(plan.groups(model, lr=learning_rate, weight_decay=0.1))
    loss = torch.tensor(math.inf)
    for step in range(steps):
        rate = learning_rate * min(1, (step + 1) / 10)
        for group in optimizer.param_groups:
            group["lr"] = rate * group["lr_factor"]  # nanoGPT has `= rate`, which would undo the plan
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    print({width: round(train(width), 4) for width in (32, 64, 128)})
