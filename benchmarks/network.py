"""Whole networks: prediction and training steps, the spectral kernel beside dense convolutions.

    python benchmarks/network.py [--rounds 7] [--threads 2] [--only nuclei-prediction ...]

Prediction compares the model as it is with its folded form (``dsfcnn.fold``), which has only ordinary convolutions with batch norms merged
into them. A training step is forward, loss, backward and Adam, with either backend. Both are timed in turns in one process that keeps its
memory (dsfcnn.kernels.memory); a figure is the ratio of medians, with the quartiles of the rounds' own ratios. Peak memory is that of a
process that does nothing else. Run it on a quiet machine.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

import torch

import dsfcnn
from dsfcnn.kernels.memory import keep_memory
from dsfcnn.study.speed import backend, batch_of, prediction, seconds, training_step

CASES = {
    "nuclei-prediction": ("dsf-nuclei", "C8", False),
    "tumour-prediction": ("dsf-tumour", "C8", False),
    "nuclei-training": ("dsf-nuclei", "C8", True),
    "digits-training": ("steerable-digits", "C8", True),
    "mirrors-prediction": ("dsf-nuclei", "D4", False),
    "mirrors-training": ("dsf-nuclei", "D4", True),
}


def ways(name: str, group: str, training: bool) -> dict[str, Callable[[], None]]:
    torch.manual_seed(0)
    model, images = dsfcnn.create(name, group=group), batch_of(name, training)
    if training:
        return {"dense": training_step(model, images), "auto": training_step(model, images)}
    return {"dense": prediction(dsfcnn.fold(model), images), "auto": prediction(model, images)}


def compare(name: str, group: str, training: bool, rounds: int) -> str:
    times: dict[str, list[float]] = {"dense": [], "auto": []}
    runs = ways(name, group, training)
    for number in range(rounds + 1):
        for way, run in runs.items():
            with backend(way):
                taken = seconds(run)
            if number:
                times[way].append(taken)
    ratios = [dense / ours for dense, ours in zip(times["dense"], times["auto"])]
    lower, _, upper = quantiles(ratios, n=4, method="inclusive")
    middle = {way: median(values) for way, values in times.items()}
    return f"{middle['dense'] / middle['auto']:6.2f}  ({lower:.2f} to {upper:.2f}; {middle['dense']:.2f} s and {middle['auto']:.2f} s)"


def peak(name: str, group: str, training: bool, way: str, threads: int) -> float:
    """Megabytes above what the process had before, in a process of its own."""
    command = [sys.executable, __file__, "--peak", json.dumps([name, group, training, way]), "--threads", str(threads)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def measure_peak(name: str, group: str, training: bool, way: str) -> None:
    run = ways(name, group, training)[way]
    before = largest_resident()
    with backend(way):
        run()
        run()
    print(largest_resident() - before)


def largest_resident() -> float:
    """Megabytes. Not getrusage, which also counts what the process was before it became this program."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        measure_peak(*json.loads(options.peak))
        return
    keep_memory()
    for case in options.only:
        name, group, training = CASES[case]
        shape = "x".join(str(length) for length in batch_of(name, training).shape)
        compared = compare(name, group, training, options.rounds)
        print(f"{case} ({name} {group}, {shape}, {options.threads} threads): dense / spectral {compared}", flush=True)
        if training:
            memory = {way: peak(name, group, training, way, options.threads) for way in ("dense", "auto")}
            print(f"  peak memory: dense {memory['dense']:.0f} MB, spectral {memory['auto']:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
