"""Alignment as a study keeps it: a curve for every layer and field, named `alignment/LAYER/FIELD`."""

from widthwise.coordinates import AlignmentPoint
from widthwise.study.encoding import History


def alignment_points(curves: dict[str, History]) -> tuple[AlignmentPoint, ...]:
    """Return what a run measured of its layers, from the curves it is stored as."""
    names = {name: name.removeprefix("alignment/").rpartition("/") for name in curves if name.startswith("alignment/")}
    if not names:
        return ()
    steps = curves[next(iter(names))].steps.tolist()
    points: list[dict[str, dict[str, float]]] = [{} for _ in steps]
    for name, (layer, _, field) in names.items():
        for point, value in zip(points, curves[name].values.tolist(), strict=True):
            point.setdefault(layer, {})[field] = value
    return tuple(AlignmentPoint(step=step, layers=layers) for step, layers in zip(steps, points, strict=True))
