"""This project's side of the sweep of `gpu.py`: the command that a user would start, and nothing else. Prints JSON."""

import subprocess
import sys
import tempfile

import gpu_settings as settings


def main() -> None:
    setting, rates = settings.SETTINGS["lanes"], settings.RATES
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "study": folder,
            "widths": settings.SWEEP_WIDTH,
            "parameterizations": settings.PARAMETERIZATIONS,
            "grid": (rates[0] * 0.99, rates[-1] * 1.01),
            "blocks": setting.blocks,
            "head-dim": setting.head_dim,
            "context": setting.context,
            "batch": setting.batch,
            "steps": settings.SWEEP_STEPS,
            "warmup": settings.SWEEP_WARMUP,
            "eval-batches": settings.SWEEP_EVALUATIONS,
            "evaluations": 1,  # at the end, as the other side does
        }
        words = [
            word
            for name, value in options.items()
            for word in (f"--{name}", *map(str, value if isinstance(value, tuple) else (value,)))
        ]
        done = subprocess.run(
            [sys.executable, "-m", "widthwise.cli", "sweep", *words], check=True, capture_output=True, text=True
        )
    settings.tell(part="sweep", who="ours", width=settings.SWEEP_WIDTH, said=done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
