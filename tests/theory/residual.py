"""A residual network in NumPy, trained for some steps by each family of optimizers under given exponents of depth.

Blocks read the stream through a norm, and so does the readout. Embedding and readout are not trained, so that what
changes the stream are the blocks alone.
"""

from dataclasses import dataclass

import numpy as np

from widthwise.theory import ALL_FAMILIES, DepthExponents

WIDTH, BATCH = 32, 16
EPSILON = 0.02
"""As large as gradients, so that its exponent matters."""
BASE_RATE = {"sgd": 5e-3, "adam": 1e-3, "adafactor": 5e-3, "muon+adam": 5e-3}


@dataclass(frozen=True)
class Sizes:
    """What a coordinate check over depth looks at, as root mean squares."""

    stream: float
    stream_change: float
    """Relative to the stream."""
    block_change: float
    """The change of activations inside a block through its own update."""


def rms(value: np.ndarray) -> float:
    return float(np.sqrt(np.mean(value**2)))


def train(
    depth: int, exponents: DepthExponents, family: str, *, fold: bool = False, steps: int = 3, seed: int = 0
) -> tuple[Sizes, np.ndarray]:
    """Train the network; return the sizes and the stream at the end. Factors are powers of the depth itself.

    With `fold`, the last weight and the bias of each branch carry its multiplier.
    """
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape)

    first, last = normal(depth, WIDTH, WIDTH) * np.sqrt(2 / WIDTH), normal(depth, WIDTH, WIDTH) / np.sqrt(WIDTH)
    bias = 0.1 * normal(depth, WIDTH)
    parameters = {"first": first, "last": last, "gain": np.ones((depth, WIDTH)), "bias": bias}
    inputs, readout, target = normal(BATCH, WIDTH), normal(WIDTH, WIDTH) / np.sqrt(WIDTH), normal(BATCH, WIDTH)
    ending = exponents.folded(ALL_FAMILIES[family]) if fold else exponents
    of = {"first": exponents, "gain": exponents, "last": ending, "bias": ending}
    for name in parameters:
        parameters[name] = parameters[name] * depth ** -float(of[name].init)
    multiplier = depth ** -float(ending.branch)
    start = dict(parameters)
    before, read = forward(parameters, inputs, multiplier)
    moments = {name: (np.zeros_like(value), np.zeros_like(value)) for name, value in parameters.items()}
    for step in range(1, steps + 1):
        for name, gradient in gradients(parameters, inputs, readout, target, multiplier).items():
            power = of[name].vector_rate if gradient.ndim == 2 else of[name].matrix_rate
            moments[name] = (0.9 * moments[name][0] + 0.1 * gradient, 0.95 * moments[name][1] + 0.05 * gradient**2)
            averages = moments[name][0] / (1 - 0.9**step), moments[name][1] / (1 - 0.95**step)
            epsilon = EPSILON * depth ** -float(of[name].epsilon)
            update = direction(family, parameters[name], gradient, *averages, epsilon)
            parameters[name] = parameters[name] - BASE_RATE[family] * depth ** -float(power) * update
    after, _ = forward(parameters, inputs, multiplier)
    own = np.einsum("lbi,loi->lbo", read * parameters["gain"][:, None], parameters["first"])
    own -= np.einsum("lbi,loi->lbo", read * start["gain"][:, None], start["first"])
    sizes = Sizes(stream=rms(before), stream_change=rms(after - before) / rms(before), block_change=rms(own))
    return sizes, after


def forward(parameters: dict[str, np.ndarray], stream: np.ndarray, multiplier: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the stream after the last block, and what each block reads: the normalized stream."""
    read = []
    for first, last, gain, bias in blocks(parameters):
        read.append(normalized(stream))
        stream = stream + multiplier * (np.maximum(read[-1] * gain @ first.T, 0) @ last.T + bias)
    return stream, np.stack(read)


def blocks(parameters: dict[str, np.ndarray]):
    return list(zip(*(parameters[name] for name in ("first", "last", "gain", "bias")), strict=True))


def normalized(stream: np.ndarray) -> np.ndarray:
    return stream / np.sqrt(np.mean(stream**2, axis=-1, keepdims=True))


def through_norm(gradient: np.ndarray, stream: np.ndarray) -> np.ndarray:
    size = np.sqrt(np.mean(stream**2, axis=-1, keepdims=True))
    unit = stream / size
    return (gradient - unit * np.mean(gradient * unit, axis=-1, keepdims=True)) / size


def gradients(parameters, inputs, readout, target, multiplier) -> dict[str, np.ndarray]:
    """Return the gradients of half the mean squared error."""
    streams = [inputs]
    for first, last, gain, bias in blocks(parameters):
        inner = np.maximum(normalized(streams[-1]) * gain @ first.T, 0)
        streams.append(streams[-1] + multiplier * (inner @ last.T + bias))
    error = (normalized(streams[-1]) @ readout.T - target) / BATCH
    back = through_norm(error @ readout, streams[-1])
    found = {name: np.zeros_like(value) for name, value in parameters.items()}
    for index, (first, last, gain, _) in reversed(list(enumerate(blocks(parameters)))):
        read = normalized(streams[index])
        inner = np.maximum(read * gain @ first.T, 0)
        out = multiplier * back
        found["bias"][index] = out.sum(0)
        found["last"][index] = out.T @ inner
        hidden = (out @ last) * (inner > 0)
        found["first"][index] = hidden.T @ (read * gain)
        entering = hidden @ first
        found["gain"][index] = (entering * read).sum(0)
        back = back + through_norm(entering * gain, streams[index])
    return found


def direction(family: str, value, gradient, first_moment, second_moment, epsilon: float) -> np.ndarray:
    """Return the update per unit of the learning rate; matrices and vectors of different blocks are apart."""
    if family == "sgd":
        return gradient
    if family == "muon+adam" and value.ndim == 3:
        left, _, right = np.linalg.svd(first_moment, full_matrices=False)
        return left @ right
    adam = first_moment / (np.sqrt(second_moment) + epsilon)
    if family == "adafactor":
        return adam * np.sqrt(np.mean(value**2, axis=tuple(range(1, value.ndim)), keepdims=True))
    return adam
