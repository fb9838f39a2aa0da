"""Translate the operations of PyTorch (of `aten`, after autograd) into those that parameters are followed through."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from widthwise.torch.tape import Slot, Tape

SlotOf = Callable[[torch.Tensor], Slot]

ONLY_SHAPES = {"empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like"}
ONLY_SHAPES |= {"new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided", "sym_size", "sym_numel"}
"""Operations that read nothing of their operands but shape and type."""

_SAME = {"clone", "alias", "detach", "contiguous", "_to_copy", "lift_fresh", "lift_fresh_copy", "flip", "roll"}
_SAME |= {"_conj", "resolve_conj", "resolve_neg", "lift", "_reshape_copy", "to"}
_RESHAPES = {"view", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "_reshape_alias", "flatten", "view_copy"}
_RESHAPES |= {"unsqueeze_copy", "squeeze_copy"}
_SLICES = {"slice", "narrow", "constant_pad_nd", "slice_copy", "diagonal"}
_SPLITS = {"split", "split_with_sizes", "unsafe_split", "chunk", "unsafe_chunk", "unsafe_split_with_sizes"}
_SPLITS |= {"split_copy", "split_with_sizes_copy"}
_SUMS = {"sum", "mean"}
_REDUCTIONS = {"amax", "amin", "max", "min", "var", "std", "norm", "linalg_vector_norm", "prod", "logsumexp", "any"}
_NAMES = {
    "multiply": "mul",
    "divide": "div",
    "subtract": "sub",
    "rsub": "sub",
    "where": "select_n",
    "masked_fill": "select_n",
    "tril": "mul",
    "triu": "mul",
    "native_dropout": "mul",
    "dropout": "mul",
}
GROUPED = ("_grouped_mm", "transformers::grouped_mm_fallback")
"""Products per expert; the second is that of Hugging Face, for versions of PyTorch without the first on a CPU."""

_PRODUCTS = {"mm", "bmm", "mv", "dot", "vdot", "linear", "matmul", "_scaled_grouped_mm", *GROUPED}
_PRODUCTS |= {"addmm", "baddbmm", "addmv", "addbmm", "_addmm_activation", "convolution", "_convolution"}
PRODUCTS = frozenset(_PRODUCTS)
"""Operations that multiply two arrays and sum."""

KEPT = PRODUCTS | {"embedding", "index", "index_select", "_embedding_bag", "_embedding_bag_forward_only"}
"""Operations whose tensors can be kept, to measure them."""


def translate(
    tape: Tape, func: Any, name: str, args: Any, kwargs: Any, results: Sequence[torch.Tensor], slot: SlotOf
) -> list[Slot]:
    """Add an operation to the tape; return the places of its results."""
    given = _Given(tape, _named(func, args, kwargs), slot, [tuple(x.shape) for x in results])
    made = _translated(name, given)
    if made is None:
        operands = [given.slot(x) for x in _tensors((args, kwargs))]
        shape = given.shapes[0]
        fits = all(_fits(x.shape, shape) for x in operands)
        first = tape.elementwise if fits else tape.one
        numbers = [Slot((1,) * len(shape)) for x in args if isinstance(x, int | float) and not isinstance(x, bool)]
        made = [
            first(_NAMES.get(name, name), [*operands, *(numbers if fits and name in ("add", "sub") else [])], shape)
        ]
    if len(made) < len(results):  # statistics and masks, from which no parameter can be recovered
        made += tape.add("beside", [given.slot(x) for x in _tensors((args, kwargs))], *given.shapes[len(made) :])
    return made


class _Given:
    """The arguments of an operation by name, and the shapes of its results."""

    def __init__(self, tape: Tape, named: dict[str, Any], slot: SlotOf, shapes: list[tuple[int, ...]]) -> None:
        self.tape, self.named, self.slot, self.shapes = tape, named, slot, shapes
        self.shape = shapes[0]

    def __getitem__(self, name: str) -> Any:
        return self.named.get(name)

    def of(self, name: str) -> Slot | None:
        value = self.named.get(name)
        return self.slot(value) if isinstance(value, torch.Tensor) else None

    @property
    def x(self) -> Slot:
        """The first operand."""
        value = next(x for x in self.named.values() if isinstance(x, torch.Tensor))
        return self.slot(value)


def _translated(name: str, given: _Given) -> list[Slot] | None:
    tape, shape = given.tape, given.shape
    match name:
        case _ if name in _SAME:
            return [tape.one("copy", [given.x], shape)] if given.x.shape == shape else None
        case _ if name in _RESHAPES:
            return [tape.one("reshape", [given.x], shape)]
        case "t" | "transpose" | "permute" | "numpy_T" | "mT" | "adjoint" | "permute_copy" | "transpose_copy":
            return [tape.one("transpose", [given.x], shape, permutation=_permutation(name, given))]
        case "expand" | "broadcast_to" | "expand_copy":
            return [_expanded(tape, given.x, shape)]
        case "repeat":
            return [_repeated(tape, given.x, given["repeats"], shape)]
        case "copy":
            source = given.of("src")
            return None if source is None else [_expanded(tape, source, shape)]
        case _ if name in _SLICES:
            return [tape.one("slice", [given.x], shape)] if len(given.x.shape) == len(shape) else None
        case _ if name in _SPLITS:
            return [tape.one("slice", [given.x], part) for part in given.shapes]
        case "select" | "unbind" | "select_copy" | "unbind_copy":
            axis = (given["dim"] or 0) % len(given.x.shape)
            one = tuple(1 if at == axis else size for at, size in enumerate(given.x.shape))
            return [tape.reshape(tape.one("slice", [given.x], one), part) for part in given.shapes]
        case "cat" | "concat":
            parts = [x for x in map(given.slot, given["tensors"]) if len(x.shape) == len(shape)]
            return [tape.one("concatenate", parts, shape)]
        case "stack":
            parts = [given.slot(x) for x in given["tensors"]]
            axis = (given["dim"] or 0) % len(shape)
            parts = [tape.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in parts]
            return [tape.one("concatenate", parts, shape)]
        case _ if name in _SUMS:
            return [_reduced(tape, "reduce_sum", given)]
        case _ if name in _REDUCTIONS and len(given.shapes) <= 2 and given["other"] is None:
            return [_reduced(tape, "reduce_max", given)]
        case "embedding" | "embedding_bag" | "_embedding_bag" | "_embedding_bag_forward_only":
            return [_lookup(tape, given)]
        case "index_select":
            x, axis = given.x, given["dim"] % len(given.x.shape)
            indices = given.of("index")
            assert indices is not None
            return [_gather(tape, x, indices, (axis,), [at for at in range(len(shape)) if at != axis], shape)]
        case "index" | "_unsafe_index":
            return _indexed(tape, given)
        case "native_layer_norm" | "_fused_rms_norm" | "rms_norm" | "layer_norm":
            rank = len(given["normalized_shape"])
            return [_normalized(given, len(shape) - rank)]
        case "native_group_norm" | "native_batch_norm" | "batch_norm" | "_native_batch_norm_legit" | "cudnn_batch_norm":
            return [_normalized(given, 1)]
        case "_native_batch_norm_legit_no_training" | "_batch_norm_with_update" | "_batch_norm_no_update":
            return [_normalized(given, 1)]
        case "_weight_norm_interface":
            v, g = given.of("v"), given.of("g")
            assert v is not None
            assert g is not None
            direction = tape.elementwise("normalize", [v, v], shape)
            return [tape.elementwise("mul", [direction, g], shape)]
        case "addcmul" | "addcdiv":
            x, a, b = (given.slot(given[key]) for key in ("self", "tensor1", "tensor2"))
            return [tape.elementwise("add", [x, tape.elementwise(name[3:], [a, b], shape)], shape)]
        case _ if name in PRODUCTS:
            return [_product(name, given)]
        case _ if name.startswith("_scaled_dot_product"):
            return _attention(given)
    return None


def _permutation(name: str, given: _Given) -> list[int]:
    rank = len(given.x.shape)
    axes = list(range(rank))
    if name in ("permute", "permute_copy"):
        return [axis % rank for axis in given["dims"]]
    if name in ("t", "numpy_T"):
        return axes[::-1]
    a, b = (-1, -2) if name in ("mT", "adjoint") else (given["dim0"], given["dim1"])
    axes[a], axes[b] = axes[b], axes[a]
    return axes


def _expanded(tape: Tape, x: Slot, shape: Sequence[int]) -> Slot:
    places = range(len(shape) - len(x.shape), len(shape))
    return tape.one("broadcast_in_dim", [x], shape, broadcast_dimensions=tuple(places))


def _repeated(tape: Tape, x: Slot, repeats: Sequence[int], shape: Sequence[int]) -> Slot:
    x = tape.aligned(x, len(repeats))
    pairs = [size for times, old in zip(repeats, x.shape, strict=True) for size in (times, old)]
    places = tuple(range(1, len(pairs), 2))
    spread = tape.one("broadcast_in_dim", [x], pairs, broadcast_dimensions=places)
    return tape.reshape(spread, shape)


def _reduced(tape: Tape, name: str, given: _Given) -> Slot:
    x, axes = given.x, given["dim"]
    if isinstance(axes, int):
        axes = [axes]
    every = range(len(x.shape))
    axes = tuple(every) if not axes else tuple(axis % max(len(x.shape), 1) for axis in axes)
    kept = [size for axis, size in enumerate(x.shape) if axis not in axes]
    return tape.reshape(tape.one(name, [x], kept, axes=axes), given.shape)


def _lookup(tape: Tape, given: _Given) -> Slot:
    table, indices = given.of("weight"), given.of("indices")
    assert table is not None
    assert indices is not None
    each = (*indices.shape, *table.shape[1:])
    # Positions are counted inside the model, but looking them up is a lookup all the same.
    rows = _gather(tape, table, indices, (0,), range(len(indices.shape), len(each)), each, always=True)
    return rows if each == given.shape else tape.one("bag", [rows], given.shape)


def _indexed(tape: Tape, given: _Given) -> list[Slot] | None:
    x, indices = given.x, given["indices"]
    chosen = [axis for axis, index in enumerate(indices) if index is not None]
    tensors = [given.slot(indices[axis]) for axis in chosen]
    if any(index.dtype == torch.bool for index in indices if index is not None):
        return [tape.one("masked", [x, *tensors], given.shape)]
    rank = max(len(index.shape) for index in tensors)
    together = chosen == list(range(chosen[0], chosen[-1] + 1))
    first = chosen[0] if together else 0
    places = [at for at in range(len(given.shape)) if not first <= at < first + rank]
    index = tensors[0] if len(tensors) == 1 else tape.one("joined", tensors, (1,) * rank)
    return [_gather(tape, x, index, tuple(chosen), places, given.shape)]


def _gather(
    tape: Tape,
    x: Slot,
    indices: Slot,
    chosen: tuple[int, ...],
    places: Sequence[int],
    shape: Sequence[int],
    *,
    always: bool = False,
) -> Slot:
    numbers = SimpleNamespace(collapsed_slice_dims=chosen, operand_batching_dims=(), offset_dims=tuple(places))
    sizes = tuple(1 if axis in chosen else size for axis, size in enumerate(x.shape))
    indices = ALWAYS if always else indices
    return tape.one("gather", [x, indices], shape, dimension_numbers=numbers, slice_sizes=sizes)


ALWAYS = Slot(())
"""Indices that count as an example, wherever they come from."""


def _normalized(given: _Given, first: int) -> Slot:
    """Normalize, then multiply by the weight and add the bias, whose first axis is this one."""
    tape, shape = given.tape, given.shape
    x = given.of("input")
    result = tape.one("normalize", [given.x if x is None else x], shape)
    for name, key in (("mul", "weight"), ("add", "bias")):
        vector = given.of(key)
        if vector is not None:
            result = tape.one(name, [result, tape.aligned(vector, len(shape), first)], shape)
    return result


def _product(name: str, given: _Given) -> Slot:
    tape, shape = given.tape, given.shape
    added = None
    match name:
        case "mm" | "addmm" | "_addmm_activation":
            a, b = _factors(given)
            result = tape.dot(a, b, ((1,), (0,)), ((), ()), shape)
            added = given.of("self") if name != "mm" else None
        case "bmm" | "baddbmm":
            a, b = _factors(given)
            result = tape.dot(a, b, ((2,), (1,)), ((0,), (0,)), shape)
            added = given.of("self") if name == "baddbmm" else None
        case "addbmm":
            a, b = _factors(given)
            result = tape.dot(a, b, ((0, 2), (0, 1)), ((), ()), shape)
            added = given.of("self")
        case "mv" | "addmv":
            a, b = _factors(given)
            result = tape.dot(a, b, ((1,), (0,)), ((), ()), shape)
            added = given.of("self") if name == "addmv" else None
        case "dot" | "vdot":
            a, b = _factors(given)
            result = tape.dot(a, b, ((0,), (0,)), ((), ()), shape)
        case "linear":
            a, b = given.x, given.slot(given["weight"])
            result = tape.dot(a, b, ((len(a.shape) - 1,), (1,)), ((), ()), shape)
            added = given.of("bias")
        case "matmul":
            a, b = given.slot(given["self"]), given.slot(given["other"])
            last = max(len(b.shape) - 2, 0)
            batched = range(min(len(a.shape), len(b.shape)) - 2 if len(b.shape) > 2 else 0)
            result = tape.dot(a, b, ((len(a.shape) - 1,), (last,)), (tuple(batched), tuple(batched)), shape)
        case "convolution" | "_convolution":
            a, b = given.x, given.slot(given["weight"])
            outputs_first = (1, 0) if given["transposed"] else (0, 1)
            kernel = (*outputs_first, *range(2, len(b.shape)))
            order = tuple(range(len(a.shape)))
            result = tape.one("conv_general_dilated", [a, b], shape, dimension_numbers=(order, kernel, order))
            bias = given.of("bias")
            added = None if bias is None else tape.aligned(bias, len(shape), 1)
        case _:  # a product per expert
            tensors = [given.slot(x) for x in given.named.values() if isinstance(x, torch.Tensor)]
            a, b = tensors[:2]
            numbers = ((1,), (1,)) if len(b.shape) == 3 else ((len(a.shape) - 1,), (0,))
            result = tape.dot(a, b, numbers, ((), (0,)) if len(b.shape) == 3 else ((), ()), shape)
    return result if added is None else tape.elementwise("add", [result, added], shape)


def _attention(given: _Given) -> list[Slot]:
    """Multiply queries and keys, then their softmax and values, as attention in several operations does."""
    tape = given.tape
    q, k, v = (given.slot(given[name]) for name in ("query", "key", "value"))
    rank = len(q.shape)
    batched = tuple(range(rank - 2))
    shape = (*q.shape[:-1], k.shape[-2])
    scores = tape.dot(q, k, ((rank - 1,), (rank - 1,)), (batched, batched), shape)
    weights, *statistics = tape.add("softmax", [scores], shape, *given.shapes[1:])
    return [tape.dot(weights, v, ((rank - 1,), (rank - 2,)), (batched, batched), given.shape), *statistics]


def bilinear(
    name: str, func: Any, args: Any, kwargs: Any
) -> tuple[torch.Tensor, torch.Tensor, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] | None:
    """Return the factors of a product and the product itself as a function of them; None for other operations."""
    given = _named(func, args, kwargs)
    plain = {"addmm": "mm", "_addmm_activation": "mm", "baddbmm": "bmm", "addmv": "mv", "vdot": "dot"}.get(name, name)
    if plain in ("mm", "bmm", "mv", "dot", "matmul"):
        a, b = next((given[a], given[b]) for a, b in _FACTORS if given.get(a) is not None and given.get(b) is not None)
        return a, b, getattr(torch, plain)
    if plain == "linear":
        return given["input"], given["weight"], torch.nn.functional.linear
    if plain == "convolution":
        a, b, _, *rest = args
        return a, b, lambda a, b: func(a, b, None, *rest)
    if plain in GROUPED:
        a, b, *rest = args
        return a, b, lambda a, b: func(a, b, *rest, **kwargs)
    return None


_FACTORS = (
    ("mat1", "mat2"),
    ("batch1", "batch2"),
    ("mat", "vec"),
    ("self", "mat2"),
    ("self", "vec"),
    ("self", "tensor"),
    ("self", "other"),
)


def _factors(given: _Given) -> tuple[Slot, Slot]:
    for a, b in _FACTORS:
        if given[a] is not None and given[b] is not None:
            return given.slot(given[a]), given.slot(given[b])
    raise NotImplementedError(f"a product of {', '.join(given.named)}")


def _named(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    names = [argument.name for argument in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _fits(shape: Sequence[int], result: Sequence[int]) -> bool:
    """Return whether an array can be broadcast to a shape."""
    if len(shape) > len(result):
        return False
    return all(size in (1, wanted) for size, wanted in zip(shape[::-1], result[::-1], strict=False))
