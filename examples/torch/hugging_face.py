"""A Llama of Hugging Face with their Trainer: tuned at width 64, trained at any width. Needs `accelerate`."""

import tempfile

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
    get_constant_schedule_with_warmup,
)

import widthwise as ww


def build(width: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=2,
        num_attention_heads=width // 16,
        num_key_value_heads=2,
        head_dim=16,
        bos_token_id=0,
        eos_token_id=0,
    )
    return LlamaForCausalLM(config)


def train(width: int, learning_rate: float = 1e-2, steps: int = 40) -> float:
    torch.manual_seed(0)
    tokens = (torch.arange(32) * torch.arange(1, 17)[:, None]) % 64  # count in steps of 1, 2, …, 16
    plan = ww.torch.plan(build, width=width, base_width=64, example={"input_ids": tokens})
    model = plan.init_(build(width))
    optimizer = torch.optim.AdamW(plan.groups(model, lr=learning_rate, weight_decay=0.1))
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model,
            TrainingArguments(
                folder,
                max_steps=steps,
                per_device_train_batch_size=16,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=[{"input_ids": row, "labels": row} for row in tokens],
            optimizers=(optimizer, get_constant_schedule_with_warmup(optimizer, 10)),
        )
        trainer.train()
    with torch.no_grad():
        return model(input_ids=tokens.to(model.device), labels=tokens.to(model.device)).loss.item()


if __name__ == "__main__":
    print({width: round(train(width), 4) for width in (64, 128, 256)})
