"""Put a trained model into the package: src/dsfcnn/models/shipped/NAME, with a card that says what it does on test data.

Its learning curve, and its best, middle and worst images, go to docs/images, where tools/results.py finds them.

    dsfcnn evaluate --model RUN/best --data DIR --split SPLIT --out EVALUATION
    python tools/ship.py RUN EVALUATION NAME --known "what it gets wrong, in a sentence or two"

The evaluation must be that of RUN/best: its weights' sha256 is compared.
"""

import argparse
import json
import shutil
import sys
from hashlib import sha256
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
SHIPPED, IMAGES = ROOT / "src" / "dsfcnn" / "models" / "shipped", ROOT / "docs" / "images"
LARGEST = 10_000_000  # bytes of a model folder


def card(run: Path, evaluation: Path, known: str, note: str) -> str:
    """The card of training, with the test, the price and the failures before its last sentence."""
    start, _, training = (run / "best" / "README.md").read_text().partition("## Training")
    found = json.loads((evaluation / "metrics.json").read_text())
    record = json.loads((run / "run.json").read_text())
    turned = ", ".join(f"{error:.1e} at {angle}" for angle, error in found["equivariance error"].items())
    training, _, caution = training.rpartition("\n\n")
    return (
        f"{start}## Test ({found['data']}, {found['split']}); nothing was chosen by it\n\n"
        f"{(evaluation / 'table.md').read_text()}\n"
        f"Relative change of the probabilities when the middle of the first image is turned: {turned}.\n\n"
        f"    dsfcnn evaluate --model {{name}} --data {found['data']} --split {found['split']}\n\n"
        f"## Known failures\n\n{known}\n\n![worst images of the test](worst.jpg)\n\n"
        f"## Training{training}\n\n{record['steps']:,} steps in {record['cpu_hours']:.1f} CPU hours. {note}\n\n{caution}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("evaluation", type=Path)
    parser.add_argument("name", choices=("nuclei", "glands", "tumour"))
    parser.add_argument("--known", required=True, help="what it gets wrong")
    parser.add_argument("--note", default="", help="what happened to it after training")
    options = parser.parse_args()
    weights = options.run / "best" / "model.safetensors"
    if json.loads((options.evaluation / "metrics.json").read_text())["weights"] != sha256(weights.read_bytes()).hexdigest():
        sys.exit(f"error: {options.evaluation}: of other weights than {weights}; evaluate {options.run / 'best'} again")
    folder = SHIPPED / options.name
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(options.run / "best" / name, folder / name)
    (folder / "README.md").write_text(card(options.run, options.evaluation, options.known, options.note).replace("{name}", options.name))
    for kind in ("best", "middle", "worst"):
        sheet = Image.open(options.evaluation / f"{kind}.png").convert("RGB")
        sheet.save(IMAGES / f"shipped-{options.name}-{kind}.jpg", quality=80)
    shutil.copyfile(IMAGES / f"shipped-{options.name}-worst.jpg", folder / "worst.jpg")
    shutil.copyfile(options.run / "curves.png", IMAGES / f"shipped-{options.name}-curves.png")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {size / 1e6:.1f} MB")
    if size > LARGEST:
        sys.exit(f"error: {folder}: more than {LARGEST / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
