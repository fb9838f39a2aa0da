"""Explain a prescription: what it means for every parameter, as a table and as plain values."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from widthwise.parameterize.prescription import Prescription
from widthwise.scaling import text_table


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRow:
    """What is prescribed for one parameter at this width."""

    path: str
    shape: tuple[int, ...]
    role: str
    fan_in: int | None
    init_std: float | None
    multiplier: float
    learning_rate: float
    epsilon: float | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """One row per parameter; `str()` returns a table."""

    rows: tuple[ParameterRow, ...]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the rows as values for `json.dumps`."""
        return [{**asdict(row), "shape": list(row.shape)} for row in self.rows]

    def __str__(self) -> str:
        headings = ("path", "shape", "role", "fan-in", "init std", "multiplier", "learning rate", "epsilon")
        return text_table(headings, [_cells(row) for row in self.rows], right=range(3, 8))


def explain(
    prescription: Prescription, *, learning_rate: float = 1.0, epsilon: float | None = 1.0, epsilon_power: int = 1
) -> Explanation:
    """Describe what is prescribed for every parameter.

    Args:
        prescription: The prescription.
        learning_rate: The base learning rate; with 1, the table shows factors.
        epsilon: The base epsilon; with 1, the table shows factors. None for an optimizer without epsilon.
            Orthogonalized updates have none.
        epsilon_power: 2 for Adafactor, whose epsilon is added to squared gradients.

    Returns:
        One row per parameter. Unscaled parameters have no prescribed initial size.
    """
    family = prescription.exponents.family
    return Explanation(
        tuple(
            ParameterRow(
                path=leaf.path,
                shape=leaf.shape,
                role=leaf.role.value if leaf.role else "unscaled",
                fan_in=leaf.fan_in if leaf.axes.inputs else None,
                init_std=_rms(scales.init_std) if leaf.role else None,
                multiplier=float(scales.multiplier),
                learning_rate=learning_rate * float(scales.learning_rate),
                epsilon=None
                if epsilon is None or (leaf.role and family.at(leaf.role).isometric)
                else epsilon * float(scales.epsilon) ** epsilon_power,
            )
            for leaf, scales in zip(prescription.layout.leaves, prescription.scales.by_leaf(), strict=True)
        )
    )


def _rms(sizes: Any) -> float:
    """Return one number for all layers that are stacked in a parameter."""
    return float(np.sqrt(np.mean(np.square(np.asarray(sizes, np.float64)))))


def _cells(row: ParameterRow) -> tuple[str, ...]:
    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:.4g}"

    return (
        row.path,
        "×".join(map(str, row.shape)) or "scalar",
        row.role,
        "–" if row.fan_in is None else str(row.fan_in),
        *map(number, (row.init_std, row.multiplier, row.learning_rate, row.epsilon)),
    )
