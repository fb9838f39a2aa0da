"""One of two processes that train a sharded model; run by `test_use.py`."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import widthwise as ww
from tests.torch.models import CONTEXT, GPT, VOCABULARY

TOKENS = torch.randint(VOCABULARY, (8, CONTEXT), generator=torch.Generator().manual_seed(0))
BASE, WIDE = 32, 96


def draw(model: nn.Module) -> None:
    """Initialize a model that has memory, whole or sharded, with the same numbers."""
    for i, (name, parameter) in enumerate(model.named_parameters()):
        whole = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)) * 0.02
        whole = torch.ones(parameter.shape) if "ln_" in name else whole
        with torch.no_grad():
            if isinstance(parameter, DTensor):
                from torch.distributed.tensor import distribute_tensor

                parameter.copy_(distribute_tensor(whole, parameter.device_mesh, parameter.placements))
            else:
                parameter.copy_(whole)


def losses(model: nn.Module, tokens: torch.Tensor, plan, steps: int = 4) -> list[float]:
    optimizer = torch.optim.AdamW(plan.groups(model, lr=3e-3, weight_decay=0.1))
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens)[0].flatten(0, 1), tokens.roll(-1, 1).flatten())
        loss.backward()
        optimizer.step()
        found.append(loss.detach().clone())
    return found


def main(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    plan = ww.torch.plan(GPT, width=WIDE, base_width=BASE, example=TOKENS)
    with torch.device("meta"):
        model = GPT(WIDE)
    for block in model.transformer["h"].children():
        fully_shard(block)
    fully_shard(model)
    model.to_empty(device="cpu")
    draw(model)
    plan.init_(model)
    mine = TOKENS.chunk(2)[rank]
    found = torch.stack(losses(model, mine, plan))
    dist.all_reduce(found)
    whole = GPT(WIDE)
    draw(whole)
    plan.init_(whole)
    expected = torch.stack(losses(whole, TOKENS, plan))
    torch.testing.assert_close(found / 2, expected, rtol=1e-5, atol=1e-6)
    assert list(model.state_dict()) == list(whole.state_dict())
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main(int(sys.argv[1]), sys.argv[2])
