"""A large slide with little tissue through ``dsfcnn predict``: memory of all its processes, and time in proportion to tissue.

    python benchmarks/slide_memory.py [--model FOLDER] [--size 50000] [--tissue 0.02 0.1] [--plan 100000] [--folder KEEP]

Slides are drawn tile by tile; without --model a small network learns drawn nuclei first, in a few minutes (configs/demo.yaml). While the
command runs, the memory of its whole tree of processes is looked at twice a second: PSS counts a page that several processes
share once, RSS counts it in each; the sum of each process's own largest RSS is an upper bound that no sampling can miss. Exits with 1
if PSS reaches 2 GB.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from dsfcnn.data.synthetic.slide import SlideScene, write_slide

LIMIT = 2000  # MB
_PERIOD = 4096  # drawn tissue repeats after so many pixels, which makes a slide of gigapixels quick to draw
_SEED = 2  # of 50,000 x 50,000 pixels, 1.7 and 3.3 % are tissue with the default amounts
_PAUSE = 0.5  # seconds between two looks at memory, each of which takes some 20 ms of a processor


def tree(root: int) -> list[int]:
    """A process and all below it."""
    found = [root]
    for process in found:
        for thread in Path(f"/proc/{process}/task").glob("*/children"):
            with suppress(OSError):  # ended meanwhile
                found += [int(child) for child in thread.read_text().split()]
    return found


def megabytes(process: int, file: str, key: str) -> float:
    for line in Path(f"/proc/{process}/{file}").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    return 0.0


def watch(command: list[str]) -> dict[str, float]:
    """Run a command; seconds, those of processors, and the largest memory of its tree in MB."""
    used = _processor_seconds()
    began, most, largest = time.monotonic(), {"pss": 0.0, "rss": 0.0}, {}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        now = {"pss": 0.0, "rss": 0.0}
        for one in tree(process.pid):
            with suppress(OSError):
                now["pss"] += megabytes(one, "smaps_rollup", "Pss:")
                now["rss"] += megabytes(one, "status", "VmRSS:")
                largest[one] = max(largest.get(one, 0.0), megabytes(one, "status", "VmHWM:"))
        most = {key: max(most[key], now[key]) for key in most}
        time.sleep(_PAUSE)
    if process.returncode:
        sys.exit(process.stderr.read())
    times = {"seconds": time.monotonic() - began, "processor": _processor_seconds() - used}
    return {**most, **times, "bound": sum(largest.values()), "processes": len(largest)}


def _processor_seconds() -> float:
    """Of all children that have ended, and theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def predict(slide: Path, model: Path, out: Path, threads: int) -> dict[str, float]:
    found = watch(command("predict", slide, "--model", model, "--out", out, "--threads", threads, "--overwrite"))
    record = json.loads((out / slide.stem / "run.json").read_bytes())
    written = sum(path.stat().st_size for path in (out / slide.stem).iterdir()) / 2**20
    return {**found, **record["counts"], "tile": record["settings"]["tile"], "written": written}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "dsfcnn", *map(str, arguments)]


def plan(size: int, folder: Path) -> None:
    """Open the largest slide, find its tissue and list its tiles, in this process."""
    from dsfcnn.inference.tiles import make_grid
    from dsfcnn.slides import find_tissue, open_slide

    path = drawn(folder, size, 0.01)
    began = time.perf_counter()
    with open_slide(path) as slide:
        opened = time.perf_counter() - began
        tissue = find_tissue(slide)
        grid = make_grid(slide.width, slide.height, slide.mpp, 0.5, tile=1024, margin=192)
        wanted = sum(tissue.touches(*grid.level0(grid.core(tile))) for tile in grid.tiles())
    seconds = time.perf_counter() - began
    print(
        f"{size} x {size}: opened in {opened:.1f} s, planned in {seconds:.1f} s: {wanted} of {grid.rows * grid.columns} tiles have tissue"
    )


def drawn(folder: Path, size: int, tissue: float) -> Path:
    path = folder / f"drawn-{size}-{tissue}.tif"
    if not path.exists():
        write_slide(path, SlideScene(size, size, tissue=tissue, period=_PERIOD, seed=_SEED))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--size", type=int, default=50_000)
    parser.add_argument("--tissue", type=float, nargs="+", default=[0.02, 0.1])
    parser.add_argument("--plan", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="Keep slides and results here.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        model = options.model
        if model is None:
            model = folder / "run" / "best"
            subprocess.run(command("train", Path(__file__).parents[1] / "configs" / "demo.yaml", "--out", model.parent), check=True)
        plan(options.plan, folder)
        worst = 0.0
        for tissue in options.tissue:
            found = predict(drawn(folder, options.size, tissue), model, folder / "out", options.threads)
            worst = max(worst, found["pss"])
            print(
                f"{options.size} x {options.size}, {found['tissue_mm2']:.2f} mm2 of tissue: {found['tiles']} tiles of {found['tile']:.0f}, "
                f"{found['objects']} objects, {found['written']:.0f} MB written; "
                f"{found['seconds']:.0f} s, {found['processor']:.0f} s of a processor, which is "
                f"{found['processor'] / max(found['tiles'], 1):.1f} s per tile; "
                f"peak of {found['processes']} processes: "
                f"PSS {found['pss']:.0f} MB, RSS {found['rss']:.0f} MB, at most {found['bound']:.0f} MB",
                flush=True,
            )
    sys.exit(worst >= LIMIT)


if __name__ == "__main__":
    main()
