"""Memory and time of writing many nuclei as GeoJSON: one by one as prediction does, and as one list given to json.dumps.

    python benchmarks/geojson.py [--objects 200000] [--parts 5000]

Each way runs in a process of its own. Memory is the process's largest resident size; time is that of the processor. Then the parts
on fewer objects: tracing outlines here and by rasterio, measuring, and packing at three levels of gzip.
"""

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "reference"))

from drawn_results import ellipses

from dsfcnn.inference import geojson
from dsfcnn.inference.geojson import GeoJsonWriter, read_geojson
from dsfcnn.inference.measure import measure
from dsfcnn.inference.objects import Classification, Instance, object_id
from dsfcnn.inference.outlines import outlines

NUCLEUS = Classification("Nucleus", "#1f77b4")
SCALE = 0.25 / 0.2525  # as on an Aperio slide of 40x; coordinates have decimals
COLUMNS = 2000  # of the grid on which nuclei are drawn
WAYS = {"streamed": "GeoJsonWriter", "streamed, gzip": "GeoJsonWriter, packed", "whole list": "a list of features, json.dumps, one write"}


def whole_list(path: Path, objects: Iterator[Instance]) -> None:
    """What most programs do."""
    features = []
    for one in objects:
        rings = [[[x, y] for x, y in (*ring, ring[0])] for piece in outlines(one.mask) for ring in piece]
        rings = [[[(one.x + x) * SCALE, (one.y + y) * SCALE] for x, y in ring] for ring in rings]
        properties = {
            "objectType": "detection",
            "classification": {"name": "Nucleus", "color": NUCLEUS.rgb},
            "measurements": one.measurements,
        }
        geometry = {"type": "Polygon", "coordinates": rings}
        features.append({"type": "Feature", "id": object_id("a", "detection", one), "geometry": geometry, "properties": properties})
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))


def run(way: str, count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nuclei.geojson"
        start = time.process_time()
        if way == "whole list":
            whole_list(path, ellipses(count, COLUMNS))
        else:
            with GeoJsonWriter(path, "detection", NUCLEUS, "gzip" in way, slide_id="a", scale=SCALE) as writer:
                for one in ellipses(count, COLUMNS):
                    writer.write(one)
        seconds = time.process_time() - start
        size = path.stat().st_size
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        start = time.process_time()
        found = sum(1 for _ in read_geojson(path))
        assert found == count
        return {"peak": peak, "rate": count / seconds, "size": size / 2**20, "read": count / (time.process_time() - start)}


def microseconds(work: Callable[[Instance], object], objects: list[Instance]) -> float:
    start = time.process_time()
    for one in objects:
        work(one)
    return 1e6 * (time.process_time() - start) / len(objects)


def parts(count: int) -> None:
    from rasterio.features import shapes

    objects = list(ellipses(count, COLUMNS))
    image = np.random.default_rng(0).integers(0, 256, (31, 31, 3), dtype=np.uint8)
    ours = microseconds(lambda one: outlines(one.mask), objects)
    rasterio = microseconds(lambda one: list(shapes(one.mask.astype(np.uint8), mask=one.mask)), objects[: count // 10])
    print(f"\nmicroseconds for each object, {count} objects")
    print(f"  outline {ours:.0f}, by rasterio {rasterio:.0f} ({rasterio / ours:.0f} times)")
    print(f"  six measurements {microseconds(lambda one: measure(one.mask, image, 0.25, 0.5), objects):.0f}")
    text = "".join(geojson._geometry(one, SCALE, (0, 0)) for one in objects).encode()
    for level in (1, 5, 9):
        start = time.process_time()
        size = len(gzip.compress(text, level))
        print(f"  gzip level {level}: {1e6 * (time.process_time() - start) / count:.0f}, {size / len(text):.1%} of the size")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=200_000)
    parser.add_argument("--parts", type=int, default=5_000)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(run(options.way, options.objects)))
        return
    print(f"{options.objects} nuclei\n{'':16}{'peak MB':>10}{'objects/s':>11}{'file MB':>9}{'read objects/s':>16}")
    for way in WAYS:
        done = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--way", way], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        print(f"{way:16}{found['peak']:10.0f}{found['rate']:11.0f}{found['size']:9.0f}{found['read']:16.0f}", flush=True)
    for way, meaning in WAYS.items():
        print(f"  {way}: {meaning}")
    parts(options.parts)


if __name__ == "__main__":
    main()
