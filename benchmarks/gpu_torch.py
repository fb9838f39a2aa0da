"""The same transformer in PyTorch, as fast as PyTorch makes it: what `gpu.py` compares with. Prints JSON lines.

bf16 autocast, SDPA, queries, keys and values in one product, fused AdamW, model and loss compiled together.
"""

import math

import gpu_settings as settings
import torch
import torch.nn.functional as F
from gpu_settings import Setting, tell

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCHES = 8


class Block(torch.nn.Module):
    def __init__(self, width: int, head_dim: int):
        super().__init__()
        self.head_dim = head_dim
        self.attention_norm = torch.nn.LayerNorm(width, eps=1e-6, bias=False)
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.out = torch.nn.Linear(width, width, bias=False)
        self.mlp_norm = torch.nn.LayerNorm(width, eps=1e-6, bias=False)
        self.up = torch.nn.Linear(width, 4 * width, bias=False)
        self.down = torch.nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        batch, time, width = x.shape
        split = (batch, time, width // self.head_dim, self.head_dim)
        q, k, v = (y.view(split).transpose(1, 2) for y in self.qkv(self.attention_norm(x)).split(width, dim=2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Model(torch.nn.Module):
    def __init__(self, setting: Setting, width: int):
        super().__init__()
        self.tokens = torch.nn.Embedding(setting.vocabulary, width)
        self.positions = torch.nn.Embedding(setting.context, width)
        self.blocks = torch.nn.ModuleList([Block(width, setting.head_dim) for _ in range(setting.blocks)])
        self.norm = torch.nn.LayerNorm(width, eps=1e-6, bias=False)
        self.readout = torch.nn.Linear(width, setting.vocabulary, bias=False)
        self.reset()

    def reset(self) -> None:
        """Draw the parameters anew."""
        for parameter in self.parameters():
            if parameter.ndim == 1:
                torch.nn.init.ones_(parameter)
            else:
                torch.nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        """Return the mean loss of every next token."""
        x = self.tokens(tokens[:, :-1]) + self.positions.weight
        if torch.is_autocast_enabled(DEVICE):
            x = x.to(torch.bfloat16)  # autocast alone would add all blocks up in float32, which is slower
        for block in self.blocks:
            x = block(x)
        logits = self.readout(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class Trainer:
    """A model, its optimizer and a buffer for the batch of a step."""

    def __init__(self, setting: Setting, width: int, *, mode: str | None):
        torch.manual_seed(0)
        shape = (BATCHES, setting.batch, setting.context + 1)
        self.batches = torch.randint(0, setting.vocabulary, shape, device=DEVICE)
        self.batch = self.batches[0].clone()
        with torch.device(DEVICE):
            self.model = Model(setting, width)
        self.rate = torch.tensor(1e-3, device=DEVICE)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=self.rate,
            betas=(0.9, 0.98),
            eps=1e-9,
            weight_decay=0.0,
            fused=True,
            capturable=DEVICE == "cuda",
        )
        options = {} if mode == "compile" else {"mode": mode}
        self.compiled = self.model if mode is None else torch.compile(self.model, **options)
        self.replay = self._step

    def _step(self):
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = self.compiled(self.batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def capture(self) -> None:
        """Turn the whole step into one CUDA graph."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        self.replay = graph.replay

    def step(self, index: int) -> None:
        """Take a step on the next batch."""
        self.batch.copy_(self.batches[index % BATCHES])
        self.replay()

    def steps(self, count: int) -> None:
        """Take some steps and wait for them."""
        for index in range(count):
            self.step(index)
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    def start(self) -> None:
        """Begin another run in the same memory: new parameters, no moments."""
        with torch.no_grad():
            self.model.reset()
            for state in self.optimizer.state.values():
                for value in state.values():
                    value.zero_()

    @torch.no_grad()
    def evaluate(self, batches: int) -> float:
        """Return the mean loss of some batches; not compiled, since another compilation would take longer."""
        with torch.autocast(DEVICE, torch.bfloat16):
            return float(sum(self.model(self.batches[index % BATCHES]) for index in range(batches)) / batches)


def measure(part: str, width: int, modes: list[str]) -> None:
    """Time steps in each mode; the graph replays what `compile` compiled."""
    setting = settings.SETTINGS[part]
    count = settings.steps_for(setting, width)
    for mode in modes:
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        trainer = Trainer(setting, width, mode="compile" if mode == "graph" else mode)
        first = settings.seconds(lambda trainer=trainer: trainer.steps(3))
        if mode == "graph":
            trainer.capture()
        trainer.steps(count)
        found = settings.median_seconds(lambda trainer=trainer: trainer.steps(count)) / count
        tell(
            part=part,
            who=f"torch {mode}",
            width=width,
            models=1,
            **settings.speed(setting, width, 1, found),
            first_seconds=first,
            peak_gb=torch.cuda.max_memory_allocated() / 1e9,
            reserved_gb=torch.cuda.max_memory_reserved() / 1e9,
        )
        del trainer


def sweep() -> None:
    """Compile once, then train one run after another, each a replay of one graph for every step."""
    setting, width, steps = settings.SETTINGS["lanes"], settings.SWEEP_WIDTH, settings.SWEEP_STEPS
    trainer = Trainer(setting, width, mode="compile")
    trainer.steps(3)
    if DEVICE == "cuda":
        trainer.capture()
    losses = []
    for _ in settings.PARAMETERIZATIONS:
        for rate in settings.RATES:
            trainer.start()
            for step in range(steps):
                trainer.rate.fill_(rate * shape_of(step, steps))
                trainer.step(step)
            losses.append(trainer.evaluate(settings.SWEEP_EVALUATIONS))
    tell(part="sweep", who="torch graph", width=width, runs=len(losses), finite=sum(map(math.isfinite, losses)))


def shape_of(step: int, steps: int) -> float:
    """Return linear warm-up and cosine decay."""
    warmup = settings.SWEEP_WARMUP
    return step / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def peak() -> None:
    """Time a large matrix product of random numbers."""
    size = 8192
    x, y = (torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))

    def products() -> None:
        for _ in range(20):
            x @ y
        torch.cuda.synchronize()

    products()
    tell(part="peak", who="torch", width=size, tflops=20 * 2 * size**3 / settings.median_seconds(products) / 1e12)


if __name__ == "__main__":
    torch.set_float32_matmul_precision("high")
    chosen = settings.arguments(["peak", "single", "lanes", "sweep"])
    if chosen.part == "peak":
        peak()
    elif chosen.part == "sweep":
        sweep()
    else:
        measure(chosen.part, chosen.width, chosen.modes)
