"""Muon with two of its factors: does the learning rate transfer with the rates that theory derives, and without?"""

from dataclasses import replace

from widthwise.experiments.beyond.comparison import Named, comparison
from widthwise.experiments.sizes import SIZES
from widthwise.report.showing import called
from widthwise.study.setting import Setting
from widthwise.theory import Aligned, Global

COMPARED: Named = {
    f"{called(optimizer)}, {how}": Setting(optimizer=optimizer, rates=rates)
    for optimizer in ("muon", "muon_max", "adam")
    for how, rates in (("derived rates", Aligned("full")), ("one rate", Global()))
}

EXPERIMENT = comparison(
    "muon",
    title="Does the learning rate transfer with Muon?",
    claim=(
        "Hidden layers need a constant rate if updates are multiplied by √max(1, out/in), and a rate that falls as "
        "n^-1/2 if they are multiplied by √max(out, in) (derived)."
    ),
    compared=lambda _: COMPARED,
    sizes={
        "smoke": SIZES["smoke"],
        "cpu": SIZES["cpu"].at_widths(32, 64, 128, 256, context=64, steps=300, warmup=60),
        "gpu": replace(SIZES["gpu"], widths=(128, 256, 512, 1024, 2048)),
    },
)
