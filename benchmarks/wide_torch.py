"""Repeat runs of `wide.py` in PyTorch, with the same initial weights and batches, to compare losses.

    JAX_PLATFORMS=cpu python benchmarks/wide_torch.py draw FOLDER --widths 1024 2048
    python benchmarks/wide_torch.py train FOLDER OUT

`draw` writes initial weights and batches. `train`, which does not need JAX, trains the model of `gpu_torch.py` on them,
with PyTorch's Adam and the paper's learning rate per role for the standard parameterization.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

RATE, WARMUP, BASE_WIDTH, STEPS = 0.005, 30, 256, 60


def draw(folder: Path, widths: list[int], steps: int, sizes: dict[str, int]) -> None:
    """Write initial weights and batches to a folder."""
    import jax

    from widthwise.trace.paths import named_leaves
    from widthwise.train import Spec, load_inputs, resolve

    base = Spec(**sizes, base_width=BASE_WIDTH, width=widths[0])
    inputs = load_inputs(base)
    items = inputs.batches.chunk(0, steps)
    folder.mkdir(parents=True, exist_ok=True)
    data, reader = jax.numpy.asarray(inputs.batches.data), inputs.batches.reader
    np.save(folder / "tokens.npy", np.stack([np.asarray(reader.at(data, item)) for item in items]))
    for width in widths:
        run = resolve(replace(base, width=width), vocabulary=inputs.batches.vocabulary, data={})
        params = jax.jit(run.program.initial)(run.lane)
        np.savez(folder / f"{width}.npz", **{path: np.asarray(leaf) for path, leaf in named_leaves(params).items()})


def train(folder: Path, out: Path, sizes: dict[str, int]) -> None:
    """Train from the weights in a folder, and append the losses to `torch.jsonl`."""
    import torch
    from gpu_settings import Setting
    from gpu_torch import DEVICE, Model

    torch.set_float32_matmul_precision("high")
    tokens = torch.from_numpy(np.load(folder / "tokens.npy").astype(np.int64)).to(DEVICE)
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.glob("*.npz")):
        width, weights = int(path.stem), dict(np.load(path))
        setting = Setting(
            vocabulary=len(weights["tokens/embedding"]),
            context=tokens.shape[-1] - 1,
            batch=tokens.shape[1],
            blocks=sizes["blocks"],
            head_dim=sizes["head_dim"],
        )
        for dtype in ("bfloat16", "float32"):
            with torch.device(DEVICE):
                model = Model(setting, width)
            model.load_state_dict({name: torch.from_numpy(x) for name, x in _state(weights, sizes["blocks"]).items()})
            narrow = [p for name, p in model.named_parameters() if _constant_rate(name)]
            wide = [p for name, p in model.named_parameters() if not _constant_rate(name)]
            groups = [{"params": narrow, "factor": 1.0}, {"params": wide, "factor": BASE_WIDTH / width}]
            optimizer = torch.optim.Adam(groups, lr=0.0, betas=(0.9, 0.98), eps=1e-9)
            losses = []
            for step, batch in enumerate(tokens):
                for group in optimizer.param_groups:
                    group["lr"] = RATE * min(1.0, step / WARMUP) * group["factor"]
                with torch.autocast(DEVICE, torch.bfloat16, enabled=dtype == "bfloat16"):
                    loss = model(batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
            line = {"width": width, "dtype": dtype, "loss": [round(float(x), 4) for x in losses]}
            with (out / "torch.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            del model, optimizer, groups, narrow, wide


def _constant_rate(name: str) -> bool:
    return name.startswith(("tokens", "positions")) or "norm" in name


def _state(weights: dict[str, np.ndarray], blocks: int) -> dict[str, np.ndarray]:
    """Return the weights with PyTorch's names and layout; queries, keys and values are one matrix."""
    found = {
        "tokens.weight": weights["tokens/embedding"],
        "positions.weight": weights["positions/embedding"],
        "norm.weight": weights["norm/scale"],
        "readout.weight": weights["readout/kernel"].T,
    }
    for block in range(blocks):
        ours, theirs = f"blocks/{block}", f"blocks.{block}"
        qkv = [weights[f"{ours}/attention/{part}/kernel"].T for part in ("query", "key", "value")]
        found |= {
            f"{theirs}.attention_norm.weight": weights[f"{ours}/attention_norm/scale"],
            f"{theirs}.qkv.weight": np.concatenate(qkv),
            f"{theirs}.out.weight": weights[f"{ours}/attention/out/kernel"].T,
            f"{theirs}.mlp_norm.weight": weights[f"{ours}/mlp_norm/scale"],
            f"{theirs}.up.weight": weights[f"{ours}/mlp/up/kernel"].T,
            f"{theirs}.down.weight": weights[f"{ours}/mlp/down/kernel"].T,
        }
    return {name: np.ascontiguousarray(x) for name, x in found.items()}


def main() -> None:
    """Parse the arguments and run the action."""
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["draw", "train"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=Path("."))
    parser.add_argument("--widths", type=int, nargs="+", default=[1024, 2048])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--sizes", type=json.loads, default={"blocks": 4, "head_dim": 64, "context": 128, "batch": 64})
    chosen = parser.parse_args()
    if chosen.action == "draw":
        draw(chosen.folder, chosen.widths, chosen.steps, chosen.sizes)
    else:
        train(chosen.folder, chosen.out, chosen.sizes)


if __name__ == "__main__":
    main()
