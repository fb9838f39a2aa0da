"""Models in PyTorch as people write them. They know nothing of Widthwise.

Sizes that do not grow are odd or prime where they can be, so that no size of a model is mistaken for another.
"""

import math

import torch
from torch import nn

VOCABULARY = 23
CONTEXT = 12
HEAD_DIM = 16
FEATURES = 13
CLASSES = 7
IMAGES_SHAPE = (3, 8, 8)


class Attention(nn.Module):
    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.heads = width // HEAD_DIM
        self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = self.c_attn(x).split(width, dim=2)
        q, k, v = (t.view(batch, time, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(batch, time, width))


class Block(nn.Module):
    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, bias=bias)
        self.attn = Attention(width, bias)
        self.ln_2 = nn.LayerNorm(width, bias=bias)
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(width, 4 * width, bias=bias), "c_proj": nn.Linear(4 * width, width, bias=bias)}
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](nn.functional.gelu(self.mlp["c_fc"](self.ln_2(x))))


class GPT(nn.Module):
    """A small GPT in the style of nanoGPT: fused queries, keys and values, learned positions, tied or not."""

    def __init__(self, width: int, *, tied: bool = True, bias: bool = False, layers: int = 2) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(VOCABULARY, width),
                "wpe": nn.Embedding(CONTEXT, width),
                "h": nn.ModuleList(Block(width, bias) for _ in range(layers)),
                "ln_f": nn.LayerNorm(width, bias=bias),
            }
        )
        self.lm_head = nn.Linear(width, VOCABULARY, bias=False)
        if tied:
            self.transformer["wte"].weight = self.lm_head.weight
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens, targets=None):
        x = self.transformer["wte"](tokens)
        x = x + self.transformer["wpe"](torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.transformer["h"].children():
            x = block(x)
        logits = self.lm_head(self.transformer["ln_f"](x))
        loss = None if targets is None else nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss


class RawParameters(nn.Module):
    """A transformer block of bare parameters and einsum: no module has a weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        heads = width // HEAD_DIM

        def weight(*shape: int, fan_in: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape) / fan_in**0.5)

        self.embed = nn.Parameter(torch.randn(VOCABULARY, width))
        self.positions = nn.Parameter(0.1 * torch.randn(CONTEXT, width))
        self.scale = nn.Parameter(torch.ones(width))
        self.qkv = weight(3, width, heads, HEAD_DIM, fan_in=width)
        self.out = weight(heads, HEAD_DIM, width, fan_in=width)
        self.temperature = nn.Parameter(torch.zeros(()))
        self.up = weight(width, 4 * width, fan_in=width)
        self.up_bias = nn.Parameter(torch.zeros(4 * width))
        self.down = weight(4 * width, width, fan_in=4 * width)
        self.unembed = weight(width, VOCABULARY, fan_in=width)

    def forward(self, tokens):
        x = self.embed[tokens] + self.positions[: tokens.shape[1]]
        normed = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * self.scale
        q, k, v = torch.einsum("btm,cmhd->cbthd", normed, self.qkv).unbind(0)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * self.temperature.exp() / math.sqrt(HEAD_DIM)
        y = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
        x = x + torch.einsum("bqhd,hdm->bqm", y, self.out)
        x = x + torch.relu(x @ self.up + self.up_bias) @ self.down
        return x @ self.unembed


class Recurrent(nn.Module):
    def __init__(self, width: int, kind=nn.LSTM) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.cells = kind(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.cells(self.embed(tokens))[0])


class ConvBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = nn.functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += self.shortcut(x)
        return nn.functional.relu(y, inplace=True)


class ResNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1)
        self.blocks = nn.Sequential(ConvBlock(width, width, 1), ConvBlock(width, 2 * width, 2))
        self.depthwise = nn.Conv2d(2 * width, 2 * width, 3, 1, 1, groups=2 * width)
        self.head = nn.Linear(2 * width, CLASSES)

    def forward(self, x):
        x = self.depthwise(self.blocks(self.stem(x)))
        return self.head(x.mean(dim=(2, 3)))


class Experts(nn.Module):
    """A mixture of experts that loops over those that were chosen: what is computed depends on values."""

    def __init__(self, width: int, experts: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.norm = nn.RMSNorm(width)
        self.router = nn.Linear(width, experts, bias=False)
        self.w_in = nn.Parameter(torch.randn(experts, width, 4 * width) / width**0.5)
        self.w_out = nn.Parameter(torch.randn(experts, 4 * width, width) / (4 * width) ** 0.5)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        flat = self.norm(x).flatten(0, 1)
        gates, chosen = self.router(flat).softmax(-1).topk(1)
        out = torch.zeros_like(flat)
        for expert in chosen.unique().tolist():
            rows = (chosen[:, 0] == expert).nonzero()[:, 0]
            y = nn.functional.silu(flat[rows] @ self.w_in[expert]) @ self.w_out[expert]
            out.index_add_(0, rows, y * gates[rows])
        return self.head(x + out.view_as(x))


class LowRank(nn.Module):
    """A low-rank addition to a weight, and a weight that is normalized."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.input = nn.Linear(FEATURES, width)
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.down = nn.Parameter(torch.randn(3, width) / width**0.5)
        self.up = nn.Parameter(torch.randn(width, 3))
        self.normalized = nn.utils.parametrizations.weight_norm(nn.Linear(width, width))
        self.output = nn.Linear(width, CLASSES)

    def forward(self, x):
        x = torch.relu(self.input(x))
        x = torch.relu(nn.functional.linear(x, self.weight + self.up @ self.down))
        return self.output(torch.relu(self.normalized(x)))


class EncoderDecoder(nn.Module):
    """PyTorch's own transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.core = nn.Transformer(width, width // HEAD_DIM, 1, 1, 4 * width, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(self.core(x, x))


class OffsetTied(nn.Module):
    """A tied head behind a norm whose scale is one plus its weight, as in Gemma: it cannot take a factor."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.mix = nn.Linear(width, width, bias=False)
        self.scale = nn.Parameter(torch.zeros(width))
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.mix(x)
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + self.scale)
        return self.head(x)


class Rotary(nn.Module):
    """Attention with rotary positions and two heads whose size grows with the width."""

    def __init__(self, width: int, *, explicit: bool, fused_kernel: bool) -> None:
        super().__init__()
        self.size, self.explicit, self.fused_kernel = width // 2, explicit, fused_kernel
        self.q_proj, self.k_proj = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.v_proj, self.o_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        nn.init.normal_(self.q_proj.bias, std=0.1)

    def rotated(self, x):
        angles = torch.arange(x.shape[-2])[:, None] / 10 ** torch.linspace(0, 2, self.size // 2)
        cos, sin = (torch.cat((t, t), -1).to(x.dtype) for t in (angles.cos(), angles.sin()))
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), -1) * sin

    def forward(self, x):
        q, k, v = (
            project(x).unflatten(-1, (2, self.size)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = self.rotated(q), self.rotated(k)
        if self.explicit:
            q = q * (self.size / 16) ** -0.5  # at width 32, heads have size 16
        if self.fused_kernel:
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) / math.sqrt(self.size)
            y = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -math.inf).softmax(-1) @ v
        return self.o_proj(y.transpose(1, 2).flatten(2))


class GrowingHeads(nn.Module):
    """A Llama whose heads grow; `explicit` has attention as 1/d relative to width 32, others as 1/√d."""

    def __init__(self, width: int, *, explicit: bool = False, fused_kernel: bool = True) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, width), nn.Linear(width, VOCABULARY, bias=False)
        self.attention = nn.ModuleList(Rotary(width, explicit=explicit, fused_kernel=fused_kernel) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(4))

    def forward(self, tokens):
        x = self.embed(tokens)
        for attend, norm in zip(self.attention, self.norms, strict=False):
            x = x + attend(norm(x))
        y = self.norms[2](x)
        x = x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))
        return self.head(self.norms[3](x))
