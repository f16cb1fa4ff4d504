"""Write docs/results.md from finished studies and shipped models: nothing in it is typed by hand.

    python tools/results.py FOLDER ...

A folder is what ``dsfcnn study`` or ``dsfcnn train`` wrote. The record of each finished row of a study is kept in docs/records, under the
folder's name, and tables and plots are made of all records of that name: rows may be trained one after the other, on different days. Of a
training, its card and its curve are kept. Sections of earlier studies, which have no records, stay as they are until there is one of the
same kind.
"""

import argparse
import json
import re
import shlex
import shutil
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dsfcnn.models import read_config, shipped
from dsfcnn.study.comparison import write_table
from dsfcnn.study.plans import STUDIES

DOCS = Path(__file__).parents[1] / "docs"
RECORDS = DOCS / "records"
# Settings that say nothing about the result.
LEFT_OUT = {"seed", "checkpoint_every", "licence", "init"}
INTRODUCTION = """# Results

First the models that come with the package, then the comparisons: in each, networks of equal size are trained alike. All of it is written
by `python tools/results.py`, from the models' [cards](model-cards.md) and from the records of what was trained; the command above a table
trains it again. Intervals are of a bootstrap over images, and ± is the standard deviation over seeds; of two seeds both are shown.
"""
ABOUT = {
    "nuclei": "Nuclei, Kumar et al. The paper tests on 14 images, of which these 8 are those of the same organs.",
    "rotmnist": "Digits, rotated MNIST, regenerated: other draws and turns than the paper's.",
    "pcam": "Tumour patches, a subset of PatchCamelyon with a split of its own: the paper's figures mean nothing beside these.",
    "efficiency": "Fewer images, rotated MNIST, regenerated: what the paper claims and does not measure.",
    "glands": "Glands, GlaS. The paper has none of it; it stands in for CRAG.",
    "paper-nuclei": "The paper's network for nuclei, at full width and 40x, for a stated number of steps.",
}
PICTURES = {
    "orientations": "test score against orientations",
    "images": "test score against training images",
    "convergence": "validation score against steps, means over seeds and each seed",
}
SHOWN = {
    "best.jpg": "the three best images of the test",
    "middle.jpg": "three in the middle",
    "worst.jpg": "the three worst",
    "curves.png": "the course of training",
}


def keep(folder: Path) -> None:
    """What a study or a training has finished, into docs/records under the folder's name; rows that are there from before stay."""
    if (folder / "run.json").exists():
        record, card = json.loads((folder / "run.json").read_text()), (folder / "best" / "README.md").read_text()
        (RECORDS / folder.name).mkdir(parents=True, exist_ok=True)
        (RECORDS / folder.name / "card.txt").write_text(f"{card}\n{record['steps']:,} steps in {record['cpu_hours']:.1f} CPU hours.\n")
        shutil.copyfile(folder / "curves.png", DOCS / "images" / f"run-{folder.name}-curves.png")
    for test in sorted(folder.glob("runs/*/test.json")):
        kept = RECORDS / folder.name / "runs" / test.parent.name / "test.json"
        kept.parent.mkdir(parents=True, exist_ok=True)
        hours = json.loads((test.parent / "run.json").read_text())["cpu_hours"]
        kept.write_text(json.dumps({**json.loads(test.read_text()), "cpu_hours": round(hours, 2)}, indent=1) + "\n")


def commands(tests: dict[str, dict[str, Any]]) -> list[str]:
    """How each row was made, rows that were made alike in one line; ``tests`` by the names of their folders, ROW-seedNUMBER."""
    seeds = Counter(name.rpartition("-seed")[0] for name in tests)
    made: dict[tuple[tuple[str, ...], int, tuple[str, ...]], list[str]] = {}
    for row, number in seeds.items():
        words = shlex.split(tests[f"{row}-seed0"]["command"])
        place = words.index("--row")
        made.setdefault((tuple(words[:place]), number, tuple(words[place + 2 :])), []).append(words[place + 1])
    ways = []
    for (before, number, after), labels in made.items():
        chosen = [word for label in labels for word in ("--row", label)] if len(labels) < len(STUDIES[before[2]].rows) else []
        ways.append(shlex.join([*before, *chosen, *(["--seeds", str(number)] if number > 1 else []), *after]))
    return ways


def study(folder: Path) -> str:
    """The section of a study that was kept."""
    by_name = {path.parent.name: json.loads(path.read_text()) for path in sorted(folder.glob("runs/*/test.json"))}
    tests = list(by_name.values())
    name = tests[0]["command"].split()[2]
    pictures = []
    with TemporaryDirectory() as made:
        shutil.copytree(folder / "runs", Path(made, "runs"))
        write_table(STUDIES[name], Path(made))
        table = Path(made, "table.md").read_text()
        for file, text in PICTURES.items():
            if Path(made, f"{file}.png").exists():
                shutil.copyfile(Path(made, f"{file}.png"), DOCS / "images" / f"study-{folder.name}-{file}.png")
                pictures.append(f"![{text}](images/study-{folder.name}-{file}.png)")
    config, *others = [test["settings"] for test in tests]
    shared = {key: value for key, value in config.items() if key not in LEFT_OUT and all(other.get(key) == value for other in others)}
    shared["options"] = {
        name: value for name, value in config["options"].items() if all(other["options"].get(name) == value for other in others)
    }
    if shared["augment"] == {}:
        shared["augment"] = "as the paper"
    settings = ", ".join(f"{key} {value}" for key, value in shared.items() if value not in (None, {}, False))
    hours = sum(test["cpu_hours"] for test in tests)
    return (
        f"## {ABOUT[name]}{'' if folder.name == name else f' ({folder.name})'}\n\n"
        + "".join(f"    {way}\n" for way in commands(by_name))
        + f"\nScores on {tests[0]['split']} ({tests[0]['images']:,} images), seen once per row and seed; {hours:.1f} CPU hours "
        f"of training. All rows: {settings}.\n\n{table}\n" + "\n".join(pictures) + "\n"
    )


def training(folder: Path) -> str:
    """The section of a training that was kept."""
    text = (folder / "card.txt").read_text()
    title, resolution, price = text[2:].partition("\n")[0], text.split("\n\n")[1], text.rstrip().rpartition("\n")[2]
    validation = re.search(r"## Validation (.*?)\n\n(\|.*?\n\n.*?)\n\n", text, re.DOTALL)
    command = re.search(r"^    dsfcnn train .*$", text, re.MULTILINE)
    assert validation is not None
    assert command is not None
    return (
        f"## {ABOUT[folder.name]}\n\n{command[0]}\n\n{title}. {resolution} {price} Validation {validation[1]}:\n\n{validation[2]}\n\n"
        f"![the course of training](images/run-{folder.name}-curves.png)\n"
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
    parser.add_argument("folders", type=Path, nargs="*")
    options = parser.parse_args()
    page = DOCS / "results.md"
    before = [f"## {section}" for section in page.read_text().split("\n## ")[1:]]
    for folder in options.folders:
        keep(folder)
    made = [(study if (folder / "runs").exists() else training)(folder) for folder in sorted(RECORDS.iterdir())]
    headings = ("## Shipped model", *(text.partition("\n")[0] for text in made))
    kept = [text.rstrip("\n") + "\n" for text in before if not text.startswith(headings)]
    page.write_text("\n".join([INTRODUCTION, shipped_models(), *made, *kept]))


if __name__ == "__main__":
    main()
