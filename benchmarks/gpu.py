"""Training on a GPU: this project against the same model in PyTorch, one process after another on one machine.

    python benchmarks/gpu.py                                    # all of it; about half an hour on an H200
    python benchmarks/gpu.py --only single --widths 512 --who ours

Every measurement is kept with its date and versions in benchmarks/results/gpu.json; one that is made again replaces the
old one, so parts can be measured at different times. Prints a table of what the file holds. Needs PyTorch with CUDA.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_settings import LARGE, MODES, SWEEP_WIDTH, WIDTHS

HERE = Path(__file__).parent
PARTS = (
    "peak",
    "single",
    "lanes",
    "large",
    "sweep",
    "optimizers-single",
    "optimizers-lanes",
    "alignment",
    "checkpoints",
)
PACKAGES = ("jax", "jaxlib", "flax", "optax", "torch", "numpy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure")
    parser.add_argument("--widths", nargs="+", type=int, help="in place of the widths of these parts")
    parser.add_argument("--who", nargs="+", choices=("ours", *MODES), default=("ours", *MODES))
    parser.add_argument("--results", type=Path, default=HERE / "results" / "gpu.json")
    parser.add_argument("--show", action="store_true", help="measure nothing")
    chosen = parser.parse_args()
    kept = json.loads(chosen.results.read_text()) if chosen.results.exists() else []
    for command in () if chosen.show else commands(chosen.only, chosen.widths, chosen.who):
        print("·", *command, flush=True)
        for found in run(command):
            kept = [old for old in kept if identity(old) != identity(found)] + [found]
            chosen.results.parent.mkdir(exist_ok=True)
            chosen.results.write_text(json.dumps(sorted(kept, key=identity), indent=1) + "\n")
            print("  ", {name: found[name] for name in found if name not in ("date", "versions", "device")}, flush=True)
    show(kept)


def identity(found: dict[str, Any]) -> tuple[str, int, str]:
    """Return what identifies a measurement."""
    return found["part"], found["width"], found["who"]


def commands(parts: list[str], widths: list[int] | None, who: list[str]) -> Iterator[list[str]]:
    """Return the processes to start, one after another."""
    modes = [mode for mode in MODES if mode in who]
    for part in parts:
        if part in ("peak", "sweep"):
            if "ours" in who:
                yield ["gpu_sweep.py"] if part == "sweep" else ["gpu_ours.py", part]
            if "graph" in who:
                yield ["gpu_torch.py", part]
        elif part in WIDTHS:
            for width in widths or WIDTHS[part]:
                if "ours" in who:
                    yield ["gpu_ours.py", part, "--width", str(width)]
                if modes:
                    yield ["gpu_torch.py", part, "--width", str(width), "--modes", *modes]
        elif part == "large":
            for width in widths or LARGE:
                for remat in LARGE.get(width, ("none", "block")) if "ours" in who else ():
                    yield ["gpu_ours.py", part, "--width", str(width), "--remat", remat]
        elif "ours" in who:
            usual = {"optimizers-single": 512, "checkpoints": 512}
            for width in widths or [usual.get(part, SWEEP_WIDTH)]:
                yield ["gpu_ours.py", part, "--width", str(width)]


def run(command: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the measurements of a process as it prints them."""
    stamp = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": device(),
        "versions": {name: version(name) for name in PACKAGES},
    }
    with tempfile.TemporaryDirectory() as cache:
        # Compilers keep what they compiled, across processes too; here each process starts from nothing.
        kept = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
        environment = {**os.environ, **{name: f"{cache}/{folder}" for name, folder in kept.items()}}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        began = time.monotonic()
        child = subprocess.Popen(
            [sys.executable, str(HERE / command[0]), *command[1:]], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert child.stdout is not None
        try:
            for line in child.stdout:
                if line.startswith("{"):
                    yield {**json.loads(line), "process_seconds": round(time.monotonic() - began, 2), **stamp}
        except KeyboardInterrupt:
            child.kill()
            sys.exit("interrupted; what was measured is kept")
        if child.wait():
            print(f"   failed with exit code {child.returncode}", flush=True)


def device() -> str:
    """Name the GPU without starting it."""
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except OSError:
        return "none"


def version(package: str) -> str:
    """Return the version of a package, if there is one."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def show(kept: list[dict[str, Any]]) -> None:
    """Print tables of what is known."""
    by_place: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for found in kept:
        by_place.setdefault((found["part"], found["width"]), {})[found["who"]] = found
    for (part, width), who in sorted(by_place.items()):
        print(f"\n{part}, width {width}")
        theirs = [found["tokens_per_second"] for name, found in who.items() if name != "ours" and part in WIDTHS]
        for name, found in sorted(who.items()):
            line = f"  {name:22}"
            if part in WIDTHS:
                line += f"{found['tokens_per_second'] / 1e6:8.3f} M tokens/s {found['tflops']:6.0f} TFLOP/s"
                line += f"  peak {found['peak_gb']:6.1f} GB  first steps {found['first_seconds']:5.0f} s"
                if name == "ours":
                    line += f"  program {found['program_gb']:.1f} GB"
                    line += f"  {found['tokens_per_second'] / max(theirs):.2f} × the fastest" if theirs else ""
            elif part == "sweep":
                line += f"{found['process_seconds']:8.1f} s"
            else:
                said = ("tflops", "step_ms", "relative_to_adam", "cost", "seconds", "state_gb")
                said += ("first_stall_seconds", "stall_seconds_each", "peak_gb", "program_gb")
                line += "".join(f"  {key} {found[key]:.4g}" for key in said if key in found)
            print(line)


if __name__ == "__main__":
    main()
