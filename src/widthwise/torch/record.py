"""Record a forward pass: every operation that PyTorch dispatches, with the tensors it acts on."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from widthwise.torch.shapes import Shapes
from widthwise.torch.tape import Slot, Tape
from widthwise.torch.translate import ALWAYS, KEPT, ONLY_SHAPES, bilinear, translate


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of PyTorch.

    Attributes:
        name: The name of the operation.
        numbers: The numbers that it was called with.
        where: The file and line of the model's code.
        slots: Where on the tape each number comes from; None for those of the model's code.
    """

    name: str
    numbers: tuple[float, ...]
    where: str
    slots: tuple[Slot | None, ...] = ()


class Recorder(TorchDispatchMode):
    """Records operations on a tape while it is active.

    Attributes:
        tape: The operations.
        calls: What PyTorch was called with, one entry per call.
        kept: The factors of products, and the results of products and lookups, by call, if they are to be kept.
    """

    def __init__(self, *, keep: bool = False, shapes: Shapes | None = None) -> None:
        super().__init__()
        self.tape = Tape()
        self.calls: list[Call] = []
        self.kept: dict[int, tuple[Any, torch.Tensor]] | None = {} if keep else None
        self._slots = WeakTensorKeyDictionary()
        self._written: dict[int, tuple[StorageWeakRef, list[Slot]]] = {}
        self._read: dict[Slot, int] = {}
        self._shapes = shapes
        self.attention_scale: float | None = None

    def slot(self, tensor: torch.Tensor) -> Slot:
        """Return the place of a tensor on the tape."""
        slot = self._slots.get(tensor)
        writes = self._writes(tensor)
        if slot is None:
            slot = self._slots[tensor] = Slot(tuple(tensor.shape))
        if len(writes) > self._read.get(slot, 0):  # another view of the same memory was written to
            (slot,) = self.tape.add("written", [slot, *writes[self._read.get(slot, 0) :]], slot.shape)
            self._slots[tensor] = slot
            self._read[slot] = len(writes)
        return slot

    def _writes(self, tensor: torch.Tensor) -> list[Slot]:
        try:
            storage = StorageWeakRef(tensor.untyped_storage())
        except NotImplementedError:  # sparse tensors, for instance
            return []
        known = self._written.get(storage.cdata)
        if known is None or known[0].expired():
            return []
        return known[1]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        operands = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        slots = [] if name in ONLY_SHAPES else [self.slot(x) for x in operands]
        result = func(*args, **kwargs) if self._shapes is None else self._shapes.run(func, args, kwargs)
        results = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
        if not slots or not results:
            return result
        self.tape.call, self.tape.detached = len(self.calls), not torch.is_grad_enabled()
        if torch._C._current_graph_task_id() != -1:
            # A backward pass inside the forward pass, as for a differential equation. It uses every weight the other
            # way round, which says nothing about roles.
            self.calls.append(Call(name="gradient", numbers=(), where=""))
            found = self.tape.add("gradient", [ALWAYS], *(x.shape for x in results))
            self._slots.update(zip(results, found, strict=True))
            return result
        self.calls.append(self._described(name, args))
        writes = name.endswith("_") and not name.endswith("__") and isinstance(args[0], torch.Tensor)
        found = translate(self.tape, func, name.rstrip("_") if writes else name, args, kwargs, results, self.slot)
        if self.kept is not None and name in KEPT:
            # Copies, since the model may write to them later, and so does the optimizer.
            factors = bilinear(name, func, args, kwargs)
            copied = None if factors is None else (factors[0].clone(), factors[1].clone(), factors[2])
            self.kept[self.tape.call] = (copied, results[0].clone())
        for tensor, slot in zip(results, found, strict=False):
            self._slots[tensor] = slot
            if writes:
                self._note_write(tensor, slot)
            self._read[slot] = len(self._writes(tensor))
        return result

    def _described(self, name: str, args: Any) -> Call:
        given = [x for x in args if isinstance(x, float) or _is_number(x)]
        found = tuple(float(x) for x in given)
        if self.attention_scale is None:
            slots = tuple(self.slot(x) if isinstance(x, torch.Tensor) else None for x in given)
            return Call(name=name.rstrip("_"), numbers=found, where=_where() if found else "", slots=slots)
        # However PyTorch computes attention, it is one operation to the model, with one scale.
        known = (self.attention_scale,) if found or name.startswith("_scaled_dot_product") else ()
        where = _where() if known else ""
        return Call(name="scaled_dot_product_attention", numbers=known, where=where, slots=(None,) * len(known))

    def _note_write(self, tensor: torch.Tensor, slot: Slot) -> None:
        storage = StorageWeakRef(tensor.untyped_storage())
        known = self._written.get(storage.cdata)
        if known is None or known[0].expired():
            known = self._written[storage.cdata] = (storage, [])
        known[1].append(slot)


_NOT_OF_THE_MODEL = (str(Path(str(torch.__file__)).parent), str(Path(__file__).parent))


def _where() -> str:
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_OF_THE_MODEL):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _is_number(x: Any) -> bool:
    real = type(x) is torch.Tensor and x.device.type == "cpu"
    return real and x.ndim == 0 and x.is_floating_point()


class AttentionScale(TorchFunctionMode):
    """Tells a recorder the scale of an attention that PyTorch computes in one of several ways."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **kwargs)
        query = args[0] if args else kwargs["query"]
        scale = kwargs.get("scale")
        self._recorder.attention_scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
        try:
            return func(*args, **kwargs)
        finally:
            self._recorder.attention_scale = None


@contextmanager
def plain_operations() -> Iterator[None]:
    """Let PyTorch dispatch plain operations where it would otherwise use fused ones for whole layers."""
    mkldnn, fast = torch._C._get_mkldnn_enabled(), torch.backends.mha.get_fastpath_enabled()
    logger = logging.getLogger("torch._subclasses.fake_tensor")  # which reports operations that have no shapes
    disabled, logger.disabled = logger.disabled, True
    torch._C._set_mkldnn_enabled(False)
    torch.backends.mha.set_fastpath_enabled(False)
    # The compiler, if it was used, must not see these calls: it would not compile the same code later.
    compiler = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    try:
        with compiler, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a user's own call shows them
            yield
    finally:
        logger.disabled = disabled
        torch._C._set_mkldnn_enabled(mkldnn)
        torch.backends.mha.set_fastpath_enabled(fast)
