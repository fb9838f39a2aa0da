"""A recurrent language model in Flax Linen: two layers of LSTM between an embedding and a head."""

import flax.linen as nn
import jax.numpy as jnp

VOCABULARY = 21


class LanguageModel(nn.Module):
    width: int

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(VOCABULARY, self.width)(tokens)
        # Orthogonal matrices, the default, take seconds to draw where cores are busy.
        init = nn.initializers.lecun_normal()
        x = nn.RNN(nn.OptimizedLSTMCell(self.width, recurrent_kernel_init=init), name="lstm_0")(x)
        x = nn.RNN(nn.OptimizedLSTMCell(self.width, recurrent_kernel_init=init), name="lstm_1")(x)
        return nn.Dense(VOCABULARY)(x)


def build(width, key):
    model = LanguageModel(width)
    return model.init(key, jnp.zeros((1, 3), jnp.int32)), model.apply
