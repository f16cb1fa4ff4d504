"""How far the outlines of a data set lie from what they outline.

    python tools/displacement.py --model nuclei --data ../shared/data/kumar/train --format folder --mpp 0.25

A network that commutes with quarter turns favours no direction, so its P(object) lies where the objects are seen: the shift at which it
agrees best with the truth is that of the truth. Prints pixels down and to the right, per image and on average, with the standard error.
"""

import argparse

import numpy as np

from dsfcnn.data import open_dataset
from dsfcnn.models import find_model, load_model, read_config
from dsfcnn.training.evaluation import enlarge, probabilities
from dsfcnn.training.images import rescale

REACH = 3  # pixels to each side that are tried


def displacement(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Down and right, to a part of a pixel: the vertex of a parabola through the agreement at whole shifts."""
    shifts = np.arange(-REACH, REACH + 1)
    inside = truth[REACH:-REACH, REACH:-REACH]
    vertex = []
    for axis in (0, 1):
        agreement = [np.mean(np.roll(found, shift, axis)[REACH:-REACH, REACH:-REACH] * inside) for shift in shifts]
        square, slope, _ = np.polyfit(shifts, agreement, 2)
        vertex.append(-slope / (2 * square))
    return np.array(vertex)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nuclei")
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="all")
    parser.add_argument("--format", default="auto")
    parser.add_argument("--mpp", type=float)
    options = parser.parse_args()
    folder = find_model(options.model)
    model, mpp = load_model(folder).eval(), read_config(folder)["mpp"]
    images = open_dataset(options.data, options.split, options.format, options.mpp)
    found = []
    for index in range(len(images)):
        sample = images[index]
        maps = probabilities(model, rescale(sample.image, sample.mpp, mpp))["object"]
        found.append(displacement(1 - enlarge(maps, sample.image.shape[:2])[0], sample.instances > 0))
        print(f"{images.source(index)}: {found[-1][0]:.2f} down, {found[-1][1]:.2f} right", flush=True)
    mean, error = np.mean(found, 0), np.std(found, 0, ddof=1) / len(found) ** 0.5
    print(f"mean: {mean[0]:.2f} (+- {error[0]:.2f}) down, {mean[1]:.2f} (+- {error[1]:.2f}) right")


if __name__ == "__main__":
    main()
