"""What a hidden G-convolution costs: time over that of an ordinary Conv2d between as many planes, time to build, size when saved.

The two are timed in turns in one process; each ratio is the median over rounds, with quartiles. Run it on a quiet machine: other programs
make small layers look up to 1.4 times as slow. The program notices and says so.

    python benchmarks/layers.py
    python benchmarks/layers.py --escnn PYTHON    beside escnn, by the python of an environment that has it
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from side_by_side import BATCH, KERNEL, ORIENTATIONS, SIDE, build_seconds, ratios_to_plain, saved_bytes
from torch import Tensor, nn

from dsfcnn.kernels import set_backend
from dsfcnn.layers import GConv2d

GROUP = f"C{ORIENTATIONS}"
BUILT_FIELDS = 64
QUIET = 0.9  # least share of the processors; measured: 0.98 and more on a quiet machine, 0.4 to 0.6 beside another busy program
RATIO_GOAL, BUILD_GOAL, SAVED_GOAL = 1.10, 0.1, 1.0  # times, seconds, times
FASTER_GOALS, FASTER_FROM = {"forward": 4, "training": 6}, 14  # times faster than escnn; from so many fields on


class OnPlanes(nn.Module):
    """A G-convolution that takes and gives planes (N, fields * G, H, W), as Conv2d does: two free views."""

    def __init__(self, fields: int):
        super().__init__()
        self.layer = GConv2d(fields, fields, KERNEL, group=GROUP)

    def forward(self, planes: Tensor) -> Tensor:
        return self.layer(planes.unflatten(1, (-1, ORIENTATIONS))).flatten(1, 2)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(0)
    figures: dict[str, Any] = {"build": build_seconds(lambda: OnPlanes(BUILT_FIELDS)), "fields": {}}
    for fields in options.fields:
        layer = OnPlanes(fields)
        figures["fields"][str(fields)] = {**ratios_to_plain(layer, fields, options.rounds), "saved": saved_bytes(layer)}
    return figures


def measure_escnn(options: argparse.Namespace) -> dict[str, Any]:
    program = Path(__file__).with_name("escnn_layer.py")
    settings = {"--fields": options.fields, "--built-fields": [BUILT_FIELDS], "--rounds": [options.rounds], "--threads": [options.threads]}
    words = [str(word) for name, values in settings.items() for word in (name, *values)]
    try:
        done = subprocess.run([options.escnn, program, *words], stdout=subprocess.PIPE, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"error: --escnn {options.escnn}: {error}; give the python of an environment that has escnn")
    return json.loads(done.stdout.splitlines()[-1])


def print_table(figures: dict[str, dict[str, Any]]) -> None:
    """One column for every package measured, and one for what this package sets itself."""
    columns = [figures[package] for package in figures]

    def line(name: str, *cells: str) -> None:
        print(f"{name:<30}" + "".join(f"{cell:<32}" for cell in cells))

    line("", *figures, "goal for dsfcnn")
    sizes = list(columns[0]["fields"])
    for way, title in {"forward": "forward", "training": "forward and backward"}.items():
        for fields in sizes:
            timed = [column["fields"][fields][way] for column in columns]
            cells = [f"{t['median']:.3f} ({t['lower']:.3f}-{t['upper']:.3f}) {t['best']:.3f}" for t in timed]
            cells = [cell if t["share"] >= QUIET else f"{cell} busy" for cell, t in zip(cells, timed)]
            judged = timed[0]["share"] >= QUIET and timed[0]["median"] > RATIO_GOAL
            line(f"{title}, {fields}", *cells, f"{RATIO_GOAL:.2f} or less{missed(judged)}")
    if "escnn" in figures:
        for way, goal in FASTER_GOALS.items():
            for fields in sizes:
                ours, theirs = (figures[package]["fields"][fields][way]["median"] for package in ("dsfcnn", "escnn"))
                aim = f"{goal} or more{missed(theirs / ours < goal)}" if int(fields) >= FASTER_FROM else ""
                line(f"escnn / dsfcnn, {way}, {fields}", f"{theirs / ours:.2f}", "", aim)
    builds = [column["build"] for column in columns]
    cells = [f"{build['first']:.3f} s, again {build['again']:.3f} s" for build in builds]
    line(f"build, {BUILT_FIELDS}", *cells, f"under {BUILD_GOAL} s{missed(builds[0]['first'] >= BUILD_GOAL)}")
    for fields in sizes:
        saved = [column["fields"][fields]["saved"] for column in columns]
        ratios = [s["state"] / s["weights"] for s in saved]
        cells = [f"{ratio:.2f} ({s['state'] / 1e3:.1f} of {s['weights'] / 1e3:.1f} kB)" for ratio, s in zip(ratios, saved)]
        line(f"saved state / weights, {fields}", *cells, f"{SAVED_GOAL:.2f}{missed(ratios[0] != SAVED_GOAL)}")
    for package, column in figures.items():
        rounds = [column["fields"][fields][way]["rounds"] for way in ("forward", "training") for fields in sizes]
        plain = [f"{column['fields'][fields][way]['yardstick_ms']:.1f}" for way in ("forward", "training") for fields in sizes]
        print(f"\n{package}: {min(rounds)} to {max(rounds)} rounds; Conv2d itself took {', '.join(plain)} ms in the rows above.", end="")
    print()
    if any(column["fields"][fields][way]["share"] < QUIET for column in columns for fields in sizes for way in ("forward", "training")):
        print(
            "\nbusy: other programs took the processors meanwhile, so this ratio says nothing about the goal; run again when it is quiet."
        )


def missed(yes: bool) -> str:
    return ", missed" if yes else ""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fields", type=int, nargs="+", default=[6, 14, 32], help="fields read and written (default: 6 14 32)")
    parser.add_argument("--rounds", type=int, default=10, help="rounds at least; small layers take more (default: 10)")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default: 2)")
    parser.add_argument("--backend", choices=("auto", "dense", "spectral"), default="auto", help="how the layer computes (default: auto)")
    parser.add_argument("--escnn", metavar="PYTHON", help="python of an environment with escnn, to measure its layer too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args(arguments)
    if min(*options.fields, options.threads) < 1 or options.rounds < 2:
        parser.error("--fields and --threads must be 1 or more, --rounds 2 or more")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    set_backend(options.backend)
    print(f"Hidden layer, {GROUP}, {KERNEL}x{KERNEL}, batch {BATCH}, {SIDE}x{SIDE} pixels; fields after the comma.")
    print(f"{options.threads} threads, backend {options.backend}.")
    print(
        "Times are ratios to Conv2d between as many planes: median of the rounds (quartiles), then the ratio of the shortest times.\n",
        flush=True,
    )
    figures = {"dsfcnn": measure(options)}
    if options.escnn:
        figures["escnn"] = measure_escnn(options)
    print_table(figures)
    if options.json:
        shapes = {"group": GROUP, "kernel_size": KERNEL, "batch": BATCH, "side": SIDE}
        settings = {**shapes, "threads": options.threads, "backend": options.backend, "torch": torch.__version__}
        options.json.write_text(json.dumps({"settings": settings, **figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
