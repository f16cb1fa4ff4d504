"""A prediction on a slide killed at random moments: does it go on to the same bytes?

    python benchmarks/predict_survival.py [--kills 20] [--seed 0] [--model FOLDER]

One run over a drawn slide is left alone. Others get SIGKILL at a random moment between their first and last file, are resumed, and every
file but run.json is compared with that of the first. One more is killed three times in a row. Without --model a small network with
random weights is used, whose objects are specks. Exits with 1 unless all agree and no process is left behind.
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from slide_memory import tree

import dsfcnn
from dsfcnn.data.synthetic.slide import SlideScene, write_slide

_SIZE, _TILE = 1500, 256  # pixels: 36 tiles
_GRACE = 5.0  # seconds


def write_model(folder: Path) -> Path:
    """Random weights whose maps vary enough to give objects."""
    torch.manual_seed(0)
    model = dsfcnn.create("cnn-nuclei", width=0.1)
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
                part.running_mean.normal_()
                part.bias.normal_()
    dsfcnn.save_model(model, folder, mpp=0.25, tile_margin=32)
    return folder


def start(slide: Path, model: Path, out: Path, *more: str) -> subprocess.Popen:
    arguments = ["predict", str(slide), "--model", str(model), "--out", str(out), "--tile", str(_TILE), "--threads", "1", *more]
    return subprocess.Popen([sys.executable, "-m", "dsfcnn", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def began(process: subprocess.Popen, out: Path) -> float:
    """When the first file of the state is there."""
    while not list(out.glob("*/.state/settings.json")) and process.poll() is None:
        time.sleep(0.005)
    return time.monotonic()


def files(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != "run.json"}


def kill_after(process: subprocess.Popen, out: Path, seconds: float) -> bool:
    """Whether it was still at work then; its workers have to end by themselves."""
    began(process, out)
    time.sleep(seconds)
    workers = tree(process.pid)[1:]
    process.kill()
    killed = process.wait() == -signal.SIGKILL
    last = time.monotonic() + _GRACE
    while left := [worker for worker in workers if Path(f"/proc/{worker}").exists()]:
        if time.monotonic() > last:
            sys.exit(f"processes {left} outlived the one that was killed by {_GRACE} s")
        time.sleep(0.05)
    return killed


def state(out: Path) -> str:
    found = [path for path in out.rglob("*") if path.is_file()]
    tiles = sum(path.name.startswith("probability-") for path in found)
    objects = sum(path.name.startswith("objects-") for path in found)
    unfinished = sum(path.name.startswith(".") and path.name != ".lock" for path in found)
    return f"{tiles:5} {objects:8} {unfinished:11}"


def survives(number: int, kills: int, life: float, moments: random.Random, slide: Path, model: Path, root: Path) -> bool:
    out = root / f"run{number}"
    for kill in range(kills):
        while True:
            seconds = moments.uniform(0, life / kills)
            if kill_after(start(slide, model, out, *(["--resume"] if out.exists() else [])), out, seconds):
                break
            shutil.rmtree(out)  # it had ended before, which counts for nothing
        print(f"{number:4} {seconds:6.2f}s {state(out)}", end="" if kill + 1 == kills else "\n", flush=True)
    code = start(slide, model, out, "--resume").wait()
    same = code == 0 and files(out) == files(root / "whole")
    print(f"  {'the same bytes' if same else f'DIFFERS, exit code {code}'}", flush=True)
    shutil.rmtree(out)
    return same


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    moments = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        slide = root / "slide.tif"
        write_slide(slide, SlideScene(_SIZE, _SIZE, tissue=0.8, seed=1))
        model = options.model or write_model(root / "model")
        whole = start(slide, model, root / "whole")
        first = began(whole, root / "whole")
        if whole.wait():
            sys.exit("the run that nobody killed failed; run dsfcnn doctor")
        life = time.monotonic() - first
        print(f"{'run':>4} {'killed':>7} {'tiles':>5} {'decoded':>8} {'unfinished':>11}  outcome", flush=True)
        runs = [1] * options.kills + [3]
        agreed = sum(survives(number, kills, life, moments, slide, model, root) for number, kills in enumerate(runs, 1))
    print(f"{agreed} of {len(runs)} came to the same bytes; the last was killed three times")
    sys.exit(agreed != len(runs))


if __name__ == "__main__":
    main()
