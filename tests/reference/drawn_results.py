"""Output folders as prediction writes them, drawn instead of predicted, with any number of objects: for the viewer."""

import gzip
import json
from pathlib import Path

import numpy as np

from dsfcnn.inference.geojson import _properties
from dsfcnn.inference.heatmap import write_heatmap, write_tiles
from dsfcnn.inference.measure import measure
from dsfcnn.inference.objects import Classification, Instance
from dsfcnn.inference.outlines import outlines
from dsfcnn.inference.rasters import array_tiles, write_mask, write_probability
from dsfcnn.inference.state import sha256

NUCLEUS = Classification("Nucleus", "#2ca02c")
PITCH = 40  # pixels between neighbours
MAP = 4.0  # um per pixel of the probability map


def ellipses(count, columns, mpp=0.25, seed=0):
    """Nuclei of 200 shapes, half-axes of 6 to 14 pixels, on a grid of ``columns``, each up to 5 pixels off its place."""
    random, (down, across) = np.random.default_rng(seed), np.mgrid[-15:16, -15:16]
    shapes = []
    for _ in range(200):
        a, b, angle = *random.uniform(6, 14, 2), random.uniform(0, np.pi)
        along, aside = across * np.cos(angle) + down * np.sin(angle), down * np.cos(angle) - across * np.sin(angle)
        mask = (along / a) ** 2 + (aside / b) ** 2 < 1
        image = random.integers(60, 200, (*mask.shape, 3), dtype=np.uint8)
        shapes.append((mask, measure(mask, image, mpp, random.random())))
    for number in range(count):
        mask, measurements = shapes[random.integers(len(shapes))]
        x, y = number % columns * PITCH + 5 + random.integers(-5, 5), number // columns * PITCH + 5 + random.integers(-5, 5)
        yield Instance(int(x), int(y), mask, measurements["Probability"], measurements)


def write_features(path, instances, offset=(0, 0), classification=NUCLEUS):
    """What GeoJsonWriter writes, but ids; outlines of equal masks are traced once."""
    known = {}
    with gzip.GzipFile(path, "wb", 1) as stream:
        stream.write(b'{"type":"FeatureCollection","features":[')
        for number, one in enumerate(instances):
            if id(one.mask) not in known:
                (((*ring,),),) = outlines(one.mask)
                known[id(one.mask)] = [*ring, ring[0]], _properties("detection", classification, one.measurements)
            ring, properties = known[id(one.mask)]
            left, top = one.x - offset[0], one.y - offset[1]
            corners = ",".join([f"[{left + x},{top + y}]" for x, y in ring])
            geometry = f'{{"type":"Polygon","coordinates":[[{corners}]]}}'
            line = f'{{"type":"Feature","id":"{number + 1:032x}","geometry":{geometry},"properties":{properties}}}'
            stream.write(((",\n" if number else "\n") + line).encode())
        stream.write(b"\n]}\n")


def write_record(folder, slide, size, *, task="nuclei", mpp=0.25, network_mpp=MAP, objects=0, name=None, bounds=(0, 0)):
    """``run.json``; ``slide`` is the file that was analysed, or None."""
    record = {
        "settings": {"task": task, "input": sha256(slide) if slide else "0" * 64, "slide_mpp": mpp, "mpp": network_mpp},
        "input": {"name": name or Path(folder).name, "width": size[0], "height": size[1], "bounds": list(bounds)},
        "mpp_source": "TIFF resolution tag",
        "counts": {"objects": objects, "tissue_mm2": 1.25, "unreadable_tiles": 0},
    }
    (folder / "run.json").write_text(json.dumps(record))


def write_nuclei(folder, slide, size, count, *, mpp=0.25, bounds=(0, 0), classification=NUCLEUS, **stated):
    """A folder with ``count`` nuclei, a probability map with a bump in the middle, and tissue on the left."""
    folder.mkdir(parents=True)
    columns = max(1, size[0] // PITCH)
    write_features(folder / "nuclei.geojson.gz", ellipses(count, columns, mpp), bounds, classification)
    width, height = (round(side * mpp / MAP) or 1 for side in size)
    y, x = np.mgrid[:height, :width]
    bump = np.exp(-(((x / width - 0.5) / 0.2) ** 2 + ((y / height - 0.5) / 0.2) ** 2))
    write_probability(folder / "probability.tif", array_tiles((bump * 255).astype(np.uint8)), (height, width), MAP)
    write_mask(folder / "tissue_mask.png", x < width / 2)
    write_record(folder, slide, size, mpp=mpp, objects=count, bounds=bounds, **stated)


def write_tumour(folder, slide, size, *, mpp=0.97, **stated):
    """A folder with cells whose probability grows from left to right; the last column was not looked at."""
    folder.mkdir(parents=True)
    rows, columns = (-(-side // 32) for side in (size[1], size[0]))
    tumour = np.tile(np.linspace(0, 1, columns, dtype=np.float32), (rows, 1))
    tumour[:, -1] = np.nan
    cells = np.stack([1 - tumour, tumour], axis=2)
    kinds = [Classification("Normal", "#7f7f7f"), Classification("Tumour", "#d62728")]
    count = write_tiles(folder / "tumour.geojson.gz", cells, kinds, size[::-1], True, slide_id="drawn")
    write_heatmap(folder / "probability.tif", tumour, mpp)
    write_record(folder, slide, size, task="tumour", mpp=mpp, network_mpp=mpp, objects=count, **stated)
