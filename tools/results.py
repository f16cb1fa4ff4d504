"""Write docs/results.md from finished studies and shipped models: nothing in it is typed by hand.

    python tools/results.py STUDY_FOLDER ...

A study folder is what ``dsfcnn study`` wrote. Its pictures go to docs/images; its table, its settings and the command stand in the page.
Sections of studies whose folders are not given stay as they are.
"""

import argparse
import json
import re
import shutil
from pathlib import Path

import yaml

from dsfcnn.models import read_config, shipped

DOCS = Path(__file__).parents[1] / "docs"
# Settings that say nothing about the result.
LEFT_OUT = {"data", "cache", "seed", "workers", "checkpoint_every", "licence", "init"}
ABOUT = {
    "nuclei": "Nuclei, Kumar et al. The paper tests on 14 images, of which these 8 are those of the same organs.",
    "rotmnist": "Digits, rotated MNIST, regenerated: other draws and turns than the paper's.",
    "pcam": "Tumour patches, a subset of PatchCamelyon with a split of its own: the paper's figures mean nothing beside these.",
    "efficiency": "Fewer images, rotated MNIST, regenerated: what the paper claims and does not measure.",
    "glands": "Glands, GlaS. The paper has none of it; it stands in for CRAG.",
}
PICTURES = {
    "orientations": "test score against orientations",
    "images": "test score against training images",
    "convergence": "validation score against steps",
}
SHOWN = {
    "best.jpg": "the three best images of the test",
    "middle.jpg": "three in the middle",
    "worst.jpg": "the three worst",
    "curves.png": "the course of training",
}


def study(folder: Path) -> str:
    runs = sorted(path for path in (folder / "runs").iterdir() if (path / "test.json").exists())
    config, *others = [yaml.safe_load((run / "config.yaml").read_text()) for run in runs]
    shared = {key: value for key, value in config.items() if key not in LEFT_OUT and all(other[key] == value for other in others)}
    if shared["augment"] == {}:
        shared["augment"] = "as the paper"
    test = json.loads((runs[0] / "test.json").read_text())
    command = (runs[0] / "best" / "README.md").read_text().partition("## Training\n\n    ")[2].partition("\n")[0]
    name = next(key for key in ABOUT if key in command.split())
    settings = ", ".join(f"{key} {value}" for key, value in shared.items() if value not in (None, {}, False))
    pictures = []
    for picture, text in PICTURES.items():
        if (folder / f"{picture}.png").exists():
            shutil.copyfile(folder / f"{picture}.png", DOCS / "images" / f"study-{name}-{picture}.png")
            pictures.append(f"![{text}](images/study-{name}-{picture}.png)")
    return (
        f"## {ABOUT[name]}\n\n"
        f"    {command}\n\n"
        f"Scores on {test['split']} ({test['images']:,} images), seen once per row. All rows: {settings}.\n\n"
        f"{(folder / 'table.md').read_text()}\n" + "\n".join(pictures) + "\n"
    )


def shipped_models() -> str:
    """The test tables of the cards."""
    parts = []
    for name, folder in shipped().items():
        text = (folder / "README.md").read_text()
        table = re.search(r"## Test (.*?)\n\n(\|.*?)\n\n(.*?)\n\n", text, re.DOTALL)
        if table is None:
            continue
        config = read_config(folder)
        architecture = config["architecture"]
        parts.append(
            f"## Shipped model: {name}\n\n{architecture['name']} {architecture.get('group', '')}, width {architecture['width']}, "
            f"{config['mpp']} um per pixel. Test {table[1]}.\n\n{table[2]}\n\n{table[3]}\n\n"
            + "".join(
                f"![{text}](images/shipped-{name}-{picture})\n"
                for picture, text in SHOWN.items()
                if (DOCS / "images" / f"shipped-{name}-{picture}").exists()
            )
        )
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", type=Path, nargs="*")
    options = parser.parse_args()
    page = DOCS / "results.md"
    before = [f"## {section}" for section in page.read_text().split("\n## ")[1:]]
    made = {text.partition("\n")[0]: text for text in map(study, options.studies)}
    kept = {text.partition("\n")[0]: text for text in before if not text.startswith("## Shipped model")}
    studies = [text.rstrip("\n") + "\n" for text in {**kept, **made}.values()]
    page.write_text("\n".join(["# Results\n", shipped_models(), *studies]))


if __name__ == "__main__":
    main()
