"""Planned models go through what people put models through: sharding, saving, autocast, and other people's loops."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn

import widthwise as ww
from tests.torch import sharded
from tests.torch.cases import TOKENS, gpt2, llama
from tests.torch.models import GPT


def test_two_processes_with_fsdp_train_as_one_does(tmp_path: Path):
    """From the meta device: shard, initialize, bring to size."""
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root / "src"), str(root)])
    processes = [
        subprocess.Popen(
            [sys.executable, sharded.__file__, str(rank), str(tmp_path)],
            env={**os.environ, "PYTHONPATH": paths},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors


@pytest.mark.parametrize("build", [gpt2, llama])
def test_a_saved_model_acts_as_before(build, tmp_path: Path):
    plan = ww.torch.plan(build, width=128, base_width=32, example=TOKENS)
    model = plan.init_(build(128)).eval()
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(loaded(TOKENS).logits, model(TOKENS).logits)


def test_bfloat16_and_autocast_train():
    plan = ww.torch.plan(GPT, width=128, base_width=32, example=TOKENS)
    model = plan.init_(GPT(128))
    optimizer = torch.optim.AdamW(plan.groups(model, lr=1e-2))
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(TOKENS, TOKENS.roll(-1, 1))[1]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.5
    low = plan.init_(GPT(128).bfloat16())
    for name, parameter in low.named_parameters():
        size = plan.base_sizes[name].item() * plan.factors[name].init
        assert parameter.float().square().mean().sqrt().item() == pytest.approx(size, rel=0.01)


def test_parts_that_hide_their_data_pass_through_a_wrapper():
    plan = ww.torch.plan(GPT, width=64, base_width=32, example=TOKENS)
    wrapped = nn.DataParallel(GPT(64))
    assert plan.init_(wrapped) is wrapped
    assert len(plan.groups(wrapped, lr=1e-3)) == 3


def test_a_trainer_of_hugging_face_takes_the_optimizer(tmp_path: Path):
    plan = ww.torch.plan(gpt2, width=64, base_width=32, example=TOKENS)
    model = plan.init_(gpt2(64))
    optimizer = torch.optim.AdamW(plan.groups(model, lr=1e-2, weight_decay=0.1))
    ratios = [group["lr"] for group in optimizer.param_groups]
    data = [{"input_ids": row, "labels": row} for row in TOKENS]
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=4, per_device_train_batch_size=4, report_to=[], use_cpu=True, disable_tqdm=True
    )
    schedule = transformers.get_cosine_schedule_with_warmup(optimizer, 1, 10)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="the learning rates of the groups")
        warnings.simplefilter("ignore", DeprecationWarning)
        trainer = transformers.Trainer(model, arguments, train_dataset=data, optimizers=(optimizer, schedule))
        trainer.train()
    after = [group["lr"] for group in optimizer.param_groups]
    assert [x / after[0] for x in after] == pytest.approx([x / ratios[0] for x in ratios])


def test_lightning_takes_the_groups(tmp_path: Path):
    import lightning

    plan = ww.torch.plan(GPT, width=64, base_width=32, example=TOKENS)

    class Lit(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = plan.init_(GPT(64))

        def training_step(self, batch, index):
            return self.model(batch, batch.roll(-1, 1))[1]

        def configure_optimizers(self):
            return torch.optim.AdamW(plan.groups(self.model, lr=1e-2, weight_decay=0.1))

    module = Lit()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message="the learning rates of the groups")
        trainer = lightning.Trainer(
            max_steps=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
        )
        trainer.fit(module, torch.utils.data.DataLoader(TOKENS, batch_size=4))
    assert {group["lr"] for group in trainer.optimizers[0].param_groups} == {0.01, 0.005}
