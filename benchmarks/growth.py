"""How the cost of a G-convolution grows with fields, orientations and image size: a plot of dense, spectral and the arithmetic limit.

    python benchmarks/growth.py [--out docs/images/cost-growth.png] [--rounds 7] [--threads 2]

Both ways are timed in turns, forward, 7x7. The limit is the number of multiply-adds that the spectral way needs, at the highest rate that
any of the dense convolutions of the same run reached. Run it on a quiet machine.
"""

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")
import torch
from matplotlib import pyplot as plt

import dsfcnn
from dsfcnn.kernels import backend
from dsfcnn.kernels.memory import keep_memory
from dsfcnn.layers import GConv2d

KERNEL, FIELDS, ORIENTATIONS, SIDE = 7, 14, 8, 64
SWEEPS = {"fields": (2, 4, 8, 14, 24, 32, 48), "orientations": (4, 8, 12, 16), "side": (8, 16, 32, 64, 128, 256)}


def shape_of(**change: int) -> backend.Shape:
    values = {"fields": FIELDS, "orientations": ORIENTATIONS, "side": SIDE, **change}
    return 1, values["fields"], values["fields"], KERNEL, values["orientations"], values["side"], values["side"]


@torch.inference_mode()
def measure(shape: backend.Shape, rounds: int) -> dict[str, float]:
    images, fields, out, kernel_size, n, height, width = shape
    layer, x = GConv2d(fields, out, kernel_size, group=f"C{n}").eval(), torch.randn(images, fields, n, height, width)
    times: dict[str, list[float]] = {"dense": [], "spectral": []}
    for number in range(rounds + 1):
        for way, found in times.items():
            dsfcnn.set_backend(way)
            start = time.perf_counter()
            layer(x)
            if number:
                found.append(time.perf_counter() - start)
    return {way: median(found) for way, found in times.items()}


def multiplications(way: str, shape: backend.Shape) -> float:
    """Multiply-adds of the convolution itself."""
    images, fields, out, kernel_size, n, height, width = shape
    if way == "dense":
        return images * height * width * fields * out * (n * kernel_size) ** 2
    return sum(backend.work("spectral", (images, fields, out, kernel_size, n, height, 8 * -(-width // 8)))[3:])


def draw(found: dict[str, dict[int, dict[str, float]]], out: Path) -> None:
    rate = max(multiplications("dense", shape_of(**{what: x})) / t["dense"] for what, sweep in found.items() for x, t in sweep.items())
    figure, panels = plt.subplots(1, 3, figsize=(13, 4), constrained_layout=True)
    for panel, (what, sweep) in zip(panels, found.items()):
        xs = list(sweep)
        for way, style in (("dense", "o-"), ("spectral", "s-")):
            panel.plot(xs, [1e3 * sweep[x][way] for x in xs], style, label=way)
        limit = [1e3 * multiplications("spectral", shape_of(**{what: x})) / rate for x in xs]
        panel.plot(xs, limit, "k:", label="arithmetic limit of spectral")
        panel.set(
            xscale="log", yscale="log", xlabel={"side": "image side, pixels"}.get(what, what), ylabel="milliseconds", title=title(what)
        )
        panel.set_xticks(xs, [str(x) for x in xs])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].legend()
    figure.savefig(out, dpi=80)


def title(what: str) -> str:
    fixed: dict[str, Any] = {"fields": f"{FIELDS} fields", "orientations": f"C{ORIENTATIONS}", "side": f"{SIDE}x{SIDE} pixels"}
    return ", ".join(text for name, text in fixed.items() if name != what)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/images/cost-growth.png"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_memory()
    found: dict[str, dict[int, dict[str, float]]] = {}
    for what, values in SWEEPS.items():
        found[what] = {x: measure(shape_of(**{what: x}), options.rounds) for x in values}
        for x, seconds in found[what].items():
            print(f"{what} {x}: dense {1e3 * seconds['dense']:.2f} ms, spectral {1e3 * seconds['spectral']:.2f} ms", flush=True)
    draw(found, options.out)


if __name__ == "__main__":
    main()
