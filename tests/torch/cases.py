"""The models with the roles that theory gives to their parameters, derived by hand from how each is used."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import transformers
from torch import nn

from tests.torch import models
from tests.torch.models import CLASSES, CONTEXT, FEATURES, HEAD_DIM, VOCABULARY

EMBEDDING, HIDDEN, READOUT, INNER_READOUT, TIED, UNSCALED = (
    "embedding",
    "hidden",
    "readout",
    "inner readout",
    "tied",
    "unscaled",
)

TOKENS = torch.randint(VOCABULARY, (4, CONTEXT), generator=torch.Generator().manual_seed(1))
IMAGES = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(2))
INPUTS = torch.randn(4, FEATURES, generator=torch.Generator().manual_seed(3))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model and what is known of its parameters.

    Attributes:
        name: Unique among the cases.
        build: From a width to a module.
        example: The arguments of a call.
        roles: The role of every parameter by name pattern; the first pattern that matches applies.
        inputs: The fan-in of some parameters at width 128.
    """

    name: str
    build: Callable[[int], nn.Module]
    example: Any
    roles: Mapping[str, str]
    inputs: Mapping[str, int] = field(default_factory=dict)


GPT_ROLES = {
    "*wpe.weight": EMBEDDING,
    "*ln_*": EMBEDDING,
    "*.c_*.weight": HIDDEN,
    "*.c_*.bias": EMBEDDING,
}
GPT_INPUTS = {"*attn.c_attn.weight": 128, "*mlp.c_fc.weight": 128, "*mlp.c_proj.weight": 512}


def llama(width: int, *, key_value_heads: int = 2, tied: bool = False) -> nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=2,
            num_attention_heads=width // HEAD_DIM,
            num_key_value_heads=key_value_heads or width // (2 * HEAD_DIM),
            head_dim=HEAD_DIM,
            tie_word_embeddings=tied,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


LLAMA_ROLES = {
    "*norm.weight": EMBEDDING,
    "*layernorm.weight": EMBEDDING,
    "*[qo]_proj.weight": HIDDEN,
    "*mlp.*_proj.weight": HIDDEN,
}
FIXED_HEADS = {"*.k_proj.weight": INNER_READOUT, "*.v_proj.weight": INNER_READOUT}
GROWING_HEADS = {"*.k_proj.weight": HIDDEN, "*.v_proj.weight": HIDDEN}


def mixtral(width: int) -> nn.Module:
    return transformers.MixtralForCausalLM(
        transformers.MixtralConfig(
            vocab_size=VOCABULARY,
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=2,
            num_attention_heads=width // HEAD_DIM,
            num_key_value_heads=2,
            head_dim=HEAD_DIM,
            num_local_experts=5,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def gpt2(width: int) -> nn.Module:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=width,
            n_head=width // HEAD_DIM,
            n_layer=2,
            n_positions=CONTEXT,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def bert(width: int) -> nn.Module:
    return transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=width,
            intermediate_size=4 * width,
            num_attention_heads=width // HEAD_DIM,
            num_hidden_layers=2,
            max_position_embeddings=CONTEXT,
        )
    )


def vit(width: int) -> nn.Module:
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(
            hidden_size=width,
            intermediate_size=4 * width,
            num_attention_heads=width // HEAD_DIM,
            num_hidden_layers=2,
            image_size=8,
            patch_size=4,
            num_labels=CLASSES,
        )
    )


CASES = (
    Case(
        name="gpt-tied",
        build=models.GPT,
        example=TOKENS,
        roles={"transformer.wte.weight": TIED, **GPT_ROLES},
        inputs=GPT_INPUTS,
    ),
    Case(
        name="gpt-untied-bias",
        build=partial(models.GPT, tied=False, bias=True),
        example=(TOKENS, TOKENS),
        roles={"transformer.wte.weight": EMBEDDING, "lm_head.weight": READOUT, **GPT_ROLES},
        inputs={**GPT_INPUTS, "lm_head.weight": 128},
    ),
    Case(
        name="raw-parameters",
        build=models.RawParameters,
        example=TOKENS,
        roles={
            "embed": EMBEDDING,
            "positions": EMBEDDING,
            "scale": EMBEDDING,
            "temperature": UNSCALED,
            "qkv": HIDDEN,
            "out": HIDDEN,
            "up": HIDDEN,
            "up_bias": EMBEDDING,
            "down": HIDDEN,
            "unembed": READOUT,
        },
        inputs={"qkv": 128, "out": 128, "up": 128, "down": 512, "unembed": 128},
    ),
    *(
        Case(
            name=kind.__name__.lower(),
            build=partial(models.Recurrent, kind=kind),
            example=TOKENS,
            roles={
                "embed.weight": EMBEDDING,
                "cells.weight_*": HIDDEN,
                "cells.bias_*": EMBEDDING,
                "head.weight": READOUT,
                "head.bias": UNSCALED,
            },
            inputs={"cells.weight_*": 128, "head.weight": 128},
        )
        for kind in (nn.LSTM, nn.GRU)
    ),
    Case(
        name="resnet",
        build=models.ResNet,
        example=IMAGES,
        roles={
            "stem.*": EMBEDDING,
            "*bn?.*": EMBEDDING,
            "blocks.*.conv?.weight": HIDDEN,
            "blocks.*.shortcut.weight": HIDDEN,
            # One filter per channel: its outputs grow, the channels that one output sums over do not.
            "depthwise.*": EMBEDDING,
            "head.weight": READOUT,
            "head.bias": UNSCALED,
        },
        inputs={
            "stem.weight": 27,
            "blocks.0.conv1.weight": 128 * 9,
            "blocks.1.conv2.weight": 256 * 9,
            "blocks.1.shortcut.weight": 128,
            "depthwise.weight": 9,
            "head.weight": 256,
        },
    ),
    Case(
        name="experts",
        build=models.Experts,
        example=TOKENS,
        roles={
            "embed.weight": EMBEDDING,
            "norm.weight": EMBEDDING,
            # The gates weigh what the experts give, which the head reads.
            "router.weight": INNER_READOUT,
            "w_in": HIDDEN,
            "w_out": HIDDEN,
            "head.weight": READOUT,
        },
        inputs={"router.weight": 128, "w_in": 128, "w_out": 512, "head.weight": 128},
    ),
    Case(
        name="low-rank",
        build=models.LowRank,
        example=INPUTS,
        roles={
            "input.*": EMBEDDING,
            "weight": HIDDEN,
            # Between the two factors there are only as many numbers as the rank.
            "down": INNER_READOUT,
            "up": EMBEDDING,
            "normalized.parametrizations.weight.original0": EMBEDDING,
            "normalized.parametrizations.weight.original1": HIDDEN,
            "normalized.bias": EMBEDDING,
            "output.weight": READOUT,
            "output.bias": UNSCALED,
        },
        inputs={"weight": 128, "down": 128, "up": 3, "output.weight": 128},
    ),
    Case(
        name="nn-transformer",
        build=models.EncoderDecoder,
        example=TOKENS,
        roles={
            "embed.weight": EMBEDDING,
            "*norm*": EMBEDDING,
            "core.*bias": EMBEDDING,
            "core.*weight": HIDDEN,
            "head.weight": READOUT,
            "head.bias": UNSCALED,
        },
        inputs={"core.*in_proj_weight": 128, "core.*linear2.weight": 512},
    ),
    Case(
        name="llama",
        build=llama,
        example={"input_ids": TOKENS},
        roles={"model.embed_tokens.weight": EMBEDDING, "lm_head.weight": READOUT, **LLAMA_ROLES, **FIXED_HEADS},
        inputs={"*.k_proj.weight": 128, "*.down_proj.weight": 384},
    ),
    Case(
        name="llama-tied-growing-heads",
        build=partial(llama, key_value_heads=0, tied=True),
        example={"input_ids": TOKENS},
        roles={"model.embed_tokens.weight": TIED, **LLAMA_ROLES, **GROWING_HEADS},
    ),
    Case(
        name="mixtral",
        build=mixtral,
        example={"input_ids": TOKENS},
        roles={
            "model.embed_tokens.weight": EMBEDDING,
            "*.gate.weight": INNER_READOUT,
            "*.experts.*": HIDDEN,
            "lm_head.weight": READOUT,
            **LLAMA_ROLES,
            **FIXED_HEADS,
        },
        inputs={"*.experts.gate_up_proj": 128, "*.experts.down_proj": 384, "*.gate.weight": 128},
    ),
    Case(
        name="gpt2",
        build=gpt2,
        example={"input_ids": TOKENS},
        roles={"transformer.wte.weight": TIED, **GPT_ROLES},
        inputs=GPT_INPUTS,
    ),
    Case(
        name="bert",
        build=bert,
        example={"input_ids": TOKENS},
        roles={
            "bert.embeddings.word_embeddings.weight": TIED,
            "bert.embeddings.*": EMBEDDING,
            "*LayerNorm*": EMBEDDING,
            "cls.predictions.bias": UNSCALED,
            "*.weight": HIDDEN,
            "*.bias": EMBEDDING,
        },
    ),
    Case(
        name="vit",
        build=vit,
        example={"pixel_values": IMAGES},
        roles={
            "vit.embeddings.*": EMBEDDING,
            "*layernorm*": EMBEDDING,
            "classifier.weight": READOUT,
            "classifier.bias": UNSCALED,
            "*.weight": HIDDEN,
            "*.bias": EMBEDDING,
        },
        inputs={"vit.embeddings.patch_embeddings.projection.weight": 48},
    ),
)
CASE = {case.name: case for case in CASES}
