"""A small training killed at random moments: does it go on to the same bytes?

    python benchmarks/survival.py [--kills 20] [--seed 0]

One run is left alone. Each of the others gets SIGKILL at a random moment of its life, is resumed, and every file of its folder is
compared with that of the first, but run.json and TensorBoard's events, which hold times. Dropout, augmentation, shuffling, a worker and
a moving average of the weights are on. Every run is a process of its own, forked from this one, which has loaded torch and run nothing.
Exits with 1 unless all agree.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch._dynamo  # torch loads it with the first optimiser, and takes its time
import yaml
from PIL import Image

import dsfcnn.training.run  # noqa: F401 - loaded once, for all processes
from dsfcnn.cli.main import main as dsfcnn_main

SETTINGS = {
    **{"task": "tumour", "model": "dsf-tumour", "group": "C4", "width": 0.1, "options": {"dropout": 0.3}},
    **{"format": "folder", "data_mpp": 0.97, "valid_split": "valid", "crop": 16, "batch": 4, "workers": 1},
    **{"steps": 8, "average": 0.9, "validate_every": 4, "checkpoint_every": 2},
}


def draw_patches(root: Path) -> None:
    rng = np.random.default_rng(0)
    for split, count in (("train", 6), ("valid", 3)):
        for name, mean in (("normal", 190), ("tumour", 90)):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                Image.fromarray(rng.normal(mean, 40, (20, 20, 3)).clip(0, 255).astype(np.uint8)).save(root / split / name / f"{number}.png")


def start(config: Path, folder: Path, *options: str) -> int:
    """A training in another process, which says nothing."""
    process = os.fork()
    if process:
        return process
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        dsfcnn_main(["train", str(config), "--out", str(folder), "--threads", "1", *options])
    except SystemExit as end:
        os._exit(int(end.code or 0))
    os._exit(70)


def wait(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def wait_for(path: Path) -> float:
    while not path.exists():
        time.sleep(0.002)
    return time.monotonic()


def files(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name != "run.json" and not name.startswith("events/")}


def last_step(folder: Path) -> str:
    names = sorted(path.stem for path in (folder / "checkpoints").glob("step-*.safetensors"))
    return str(int(names[-1].partition("-")[2])) if names else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    moments, agreed = random.Random(options.seed), 0
    root = Path(tempfile.mkdtemp(prefix="survival-"))
    try:
        draw_patches(root / "data")
        config = root / "config.yaml"
        config.write_text(yaml.safe_dump({**SETTINGS, "data": str(root / "data")}))
        whole = root / "whole"
        process = start(config, whole)
        began = wait_for(whole / "config.yaml")
        if wait(process):
            sys.exit("the training that nobody killed failed; run dsfcnn doctor")
        life = time.monotonic() - began
        print(f"{'kill':>4} {'after':>7} {'checkpoint':>11} {'unfinished':>11}  outcome", flush=True)
        for number in range(1, options.kills + 1):
            while (same := kill_and_compare(number, config, root / f"run{number}", whole, moments.uniform(0, life))) is None:
                pass
            agreed += same
    finally:
        shutil.rmtree(root)
    print(f"{agreed} of {options.kills} came to the same bytes")
    sys.exit(agreed != options.kills)


def kill_and_compare(number: int, config: Path, folder: Path, whole: Path, seconds: float) -> bool | None:
    """None if the run had ended before, which counts for nothing."""
    process = start(config, folder)
    wait_for(folder / "config.yaml")
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    if wait(process) != -signal.SIGKILL:
        shutil.rmtree(folder)
        return None
    step = last_step(folder)
    unfinished = [path for path in folder.rglob(".*") if path.is_file() and path.name != ".lock"]
    code = wait(start(config, folder, "--resume"))
    same = code == 0 and files(folder) == files(whole)
    outcome = "the same bytes" if same else f"DIFFERS, exit code {code}"
    print(f"{number:4} {seconds:6.2f}s {step:>11} {len(unfinished):11}  {outcome}", flush=True)
    shutil.rmtree(folder)
    return same


if __name__ == "__main__":
    main()
