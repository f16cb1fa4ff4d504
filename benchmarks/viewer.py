"""The viewer with many objects: what the server needs for them, and the time of a frame while panning in chromium without a screen.

    python benchmarks/viewer.py [--browser 3000 300000] [--server 300000 1000000] [--shots FOLDER]

The browser needs 'make viewer' and Debian's chromium and chromium-driver; server and browser share the machine. Every number of objects
is a slide of its own, equally dense; the first is the measure for the others. For the server alone, 20,000 nuclei are read and repeated.
Ends with 1 where the median frame of up to 300,000 objects is above 50 ms.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "reference"))

from browsing import chromium, frame_times, settle, viewing, wait, wait_for_result
from drawn_results import PITCH, ellipses, write_features, write_nuclei

from dsfcnn.data.synthetic.slide import SlideScene, write_slide
from dsfcnn.viewer.objects import Objects, read_objects
from dsfcnn.viewer.opened import _objects_tile
from dsfcnn.viewer.pyramid import Pyramid

LIMIT, SMOOTH = 50, 300_000  # milliseconds a frame, and up to how many objects they are asked for
SCALES = (0, 1 / 8, 1 / 4, 1 / 2, 1, 2)  # screen pixels per pixel of the slide; 0 for the whole slide


def repeated(objects, times):
    """The same objects many times, side by side in squares of as many pixels."""
    across = int(np.ceil(times**0.5))
    side = objects.boxes[:, :2].max() + PITCH
    corners = [np.array([number % across, number // across, 0, 0], np.float32) * side for number in range(times)]
    many = {name: np.concatenate([value] * times) for name, value in vars(objects).items() if isinstance(value, np.ndarray)}
    many["boxes"] = np.concatenate([objects.boxes + corner for corner in corners])
    for name in ("rings", "corners"):
        counts = np.tile(np.diff(getattr(objects, name).astype(np.int64)), times)
        many[name] = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    return Objects(**many, names=objects.names, classes=objects.classes)


def measure_server(objects):
    """Megabytes, seconds for the index, and the slowest square drawn as a picture and sent as outlines, one of every level."""
    began = time.process_time()
    _ = objects.index
    index = time.process_time() - began
    pyramid = Pyramid(*(int(side) for side in (objects.boxes[:, :2] + objects.boxes[:, 2:]).max(0)))
    slowest = {"image/png": 0.0, "application/octet-stream": 0.0}
    for level in range(pyramid.first, pyramid.full + 1):
        middle = 2 ** (level - pyramid.first) // 2
        began = time.process_time()
        kind, _ = _objects_tile(objects, pyramid.square(level, middle // 2, middle // 2))
        slowest[kind] = max(slowest[kind], time.process_time() - began)
    return objects.nbytes / 1e6, index, *slowest.values()


def server(counts):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nuclei.geojson.gz"
        write_features(path, ellipses(20_000, 141))
        began = time.process_time()
        objects = read_objects(path)
        reading = (time.process_time() - began) / len(objects)
    print("| objects | reading | arrays | index | slowest picture | slowest outlines |\n| ---: | ---: | ---: | ---: | ---: | ---: |")
    for count in counts:
        memory, index, picture, outlines = measure_server(repeated(objects, count // len(objects)))
        print(f"| {count:,} | {reading * count:.0f} s | {memory:.0f} MB | {index:.2f} s | {picture:.2f} s | {outlines:.3f} s |", flush=True)
    print("\nTime of the processor; that of reading by multiplication.\n")


def zoom(driver, scale):
    """So that a pixel of the slide has so many on the screen, in the middle; seconds until every tile is there."""
    began = time.perf_counter()
    if scale:
        driver.execute_script(
            "const view = window.dsfcnnView; view.viewer.viewport.zoomBy(arguments[0] / view.place().scale, null, true)", scale
        )
    settle(driver)
    return time.perf_counter() - began


def processor_time(driver):
    """Of the browser and all its processes so far, seconds."""
    browser = psutil.Process(driver.service.process.pid)
    return sum(sum(one.cpu_times()[:2]) for one in browser.children(recursive=True))


class Measured(NamedTuple):
    slide: float  # seconds until the slide is seen
    all: float  # and until its objects are
    again: float  # the same when the viewer is started a second time
    zoom: float  # until the view is complete after a zoom, the longest
    server: float  # megabytes
    frames: list[tuple[float, float]]  # for every scale: the median frame and the processor's time for one, milliseconds


def open_page(driver, address):
    """Seconds until the slide is seen, and until all is."""
    began = time.perf_counter()
    driver.get(address)
    wait(driver, "window.dsfcnnView?.layers.get('slide')?.getFullyLoaded()")
    slide = time.perf_counter() - began
    wait_for_result(driver, "slide")
    return slide, time.perf_counter() - began


def measure(folder, count, shots):
    side = int(np.ceil(count**0.5)) * PITCH
    write_slide(folder / "slide.tif", SlideScene(side, side, 0.25, "nuclei", seed=1, tissue=1, period=1024))
    write_nuclei(folder / "out" / "slide", folder / "slide.tif", (side, side), count)
    with viewing(folder / "out", "--slides", folder) as address, chromium() as driver:
        slide, everything = open_page(driver, address)
    zooms, frames = [], []
    with viewing(folder / "out", "--slides", folder) as address, chromium() as driver:
        _, again = open_page(driver, address)
        for number, scale in enumerate(SCALES):
            zooms.append(zoom(driver, scale))
            if shots is not None:
                driver.save_screenshot(str(shots / f"{count}-{number}.png"))
            before = processor_time(driver)
            times = frame_times(driver)
            frames.append((times[len(times) // 2], 1000 * (processor_time(driver) - before) / len(times)))
        server = next(one for one in psutil.Process().children() if "view" in one.cmdline())
        return Measured(slide, everything, again, max(zooms), server.memory_info().rss / 1e6, frames)


def browser(counts, shots):
    scales = " | ".join("whole slide" if not scale else f"{scale:g}x" for scale in SCALES)
    print(f"| objects | slide is shown | all is shown | the second time | longest zoom | server | {scales} |")
    print("| ---: |" + " ---: |" * (5 + len(SCALES)))
    slowest = 0.0
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(Path(folder), count, shots)
        cells = " | ".join(f"{median:.0f} ({busy:.0f})" for median, busy in found.frames)
        times = f"{found.slide:.1f} s | {found.all:.1f} s | {found.again:.1f} s | {found.zoom:.1f} s"
        print(f"| {count:,} | {times} | {found.server:.0f} MB | {cells} |", flush=True)
        if count <= SMOOTH:
            slowest = max(slowest, *(median for median, _ in found.frames))
    print("\nMedian of 240 frames, and the processor's time for one in all processes of the browser, ms; 60 Hz allow 16.7 on each core.")
    return slowest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--browser", type=int, nargs="*", default=[3_000, 300_000], help="objects in the browser")
    parser.add_argument("--server", type=int, nargs="*", default=[300_000, 1_000_000], help="in the server alone, multiples of 20,000")
    parser.add_argument("--shots", type=Path, help="folder for a picture of every scale")
    options = parser.parse_args()
    if options.shots:
        options.shots.mkdir(parents=True, exist_ok=True)
    if options.server:
        server(options.server)
    if options.browser:
        slowest = browser(options.browser, options.shots)
        if slowest >= LIMIT:
            sys.exit(f"a median frame of {slowest:.0f} ms is above {LIMIT}")


if __name__ == "__main__":
    main()
