"""What `widthwise exponents --depth` prints: exponents of the number of residual blocks."""

from collections.abc import Sequence

from widthwise.cli.equilibria import HEADINGS, decay_rows
from widthwise.cli.output import table
from widthwise.theory import ALIGNED_UPDATES, DecayRule, DepthAssessment, depth_equilibria, power_of_n

KINDS = ("matrices", "vectors")


def tabulate_depth(cases: Sequence[DepthAssessment]) -> str:
    """Return rules and optimizers, a row for each; a single case with what limits its rates."""
    headings = [
        *("rule", "optimizer", "branch", "matrix\nrate", "vector\nrate", "eps-\nilon"),
        *("stream", "stream\nchanges", "block\nchanges", ""),
    ]
    lines = [
        "Exponents of the number L of residual blocks (-1/2 means L^-1/2): multiplier of branches;",
        "learning rates and epsilon inside blocks; the stream at initialization; its change",
        "through updates of blocks, relative to its size; the change inside a block through its",
        "own update. Initialization, and everything outside of blocks, stays as it is.",
        "",
        table(headings, [_row(case) for case in cases], right=range(2, 9), gap=1),
    ]
    if len(cases) == 1:
        lines += _details(cases[0])
    return "\n".join(lines)


def tabulate_depth_decay(cases: Sequence[DepthAssessment], rules: Sequence[DecayRule]) -> str:
    """Return what rules of weight decay lead to inside blocks: a block of lines for every case."""
    lines = [
        "Exponents of the number L of residual blocks: the part of a weight in a block that a step",
        "removes; the steps to equilibrium; there, the size of weights, the same relative to the",
        "initialization, the part that a step changes (the effective rate), and, under α, the",
        "agreement of branches at which their sum has constant size (1/2 by chance, 1 in full).",
        "On the left, updates are independent from step to step; on the right, they agree.",
    ]
    for case in cases:
        rows: list[list[str]] = []
        for rule in rules:
            both = depth_equilibria(case, rule), depth_equilibria(case, rule, persistence=ALIGNED_UPDATES)
            found = decay_rows(KINDS, *both)
            rows += [["" if position else rule.name, *row] for position, row in enumerate(found)]
        lines += [
            "",
            f"{case.rule.name}, {case.family.name}: {_conclusion(case)}",
            table(HEADINGS, rows, right=range(2, len(HEADINGS)), gap=1),
        ]
    return "\n".join(lines)


def _row(case: DepthAssessment) -> list[str]:
    e = case.exponents
    negatives = (e.branch, e.matrix_rate, e.vector_rate, e.epsilon, case.stream, case.stream_change, case.block_change)
    return [case.rule.name, case.family.name, *(str(-value) for value in negatives), _conclusion(case)]


def _conclusion(case: DepthAssessment) -> str:
    verdict = case.verdict
    if not verdict.stable:
        return "unstable" if verdict.stable_at_init else "unstable at initialization"
    if not verdict.nontrivial:
        return "trivial"
    return "learns in every block" if verdict.every_block else "blocks are lazy"


def _details(case: DepthAssessment) -> list[str]:
    verdict = case.verdict
    answers = {
        "stable at initialization": verdict.stable_at_init,
        "stable": verdict.stable,
        "nontrivial": verdict.nontrivial,
        "features learned in every block": verdict.every_block,
    }
    lines = ["  ".join(f"{question}: {'yes' if yes else 'no'}" for question, yes in answers.items())]
    for kind in KINDS:
        limiting = " and ".join(constraint.name for constraint in case.limits(kind))
        if not any(constraint.layer == kind for constraint in case.broken):
            lines.append(f"Rate of {kind} limited by {limiting or 'nothing: it could be larger'}.")
    if verdict.stable and not verdict.every_block and verdict.nontrivial:
        lines.append(f"Blocks are lazy, each changes only as {power_of_n(-case.block_change, 'L')}.")
    return lines + [f"Broken: {constraint}." for constraint in case.broken]
