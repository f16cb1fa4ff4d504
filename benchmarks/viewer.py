"""The viewer with many objects, in chromium without a screen: time of a frame while panning, from the whole slide to single nuclei.

    python benchmarks/viewer.py [--objects 3000 300000 1000000]

Needs 'make viewer' and Debian's chromium and chromium-driver. Server and browser share the machine. Every number of objects is a slide of
its own, equally dense; the first is the measure for the others.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "reference"))

from browsing import chromium, frame_times, settle, viewing, wait_for_result
from drawn_results import PITCH, write_nuclei

from dsfcnn.data.synthetic.slide import SlideScene, write_slide

SCALES = (0, 1 / 8, 1 / 4, 1 / 2, 1, 2)  # screen pixels per pixel of the slide; 0 for the whole slide


def zoom(driver, scale):
    """So that a pixel of the slide has so many on the screen; in the middle, as far as it goes."""
    if scale:
        driver.execute_script(
            "const view = window.dsfcnnView; view.viewer.viewport.zoomBy(arguments[0] / view.place().scale, null, true)", scale
        )
    settle(driver)


def processor_time(driver):
    """Of the browser and all its processes so far, seconds."""
    browser = psutil.Process(driver.service.process.pid)
    return sum(sum(one.cpu_times()[:2]) for one in browser.children(recursive=True))


def measure(folder, count):
    """Seconds until all is there, megabytes of the server, and for every scale the median frame and the processor's time for one."""
    side = int(np.ceil(count**0.5)) * PITCH
    write_slide(folder / "slide.tif", SlideScene(side, side, 0.25, "nuclei", seed=1, tissue=1, period=1024))
    write_nuclei(folder / "out" / "slide", folder / "slide.tif", (side, side), count)
    frames = []
    with viewing(folder / "out", "--slides", folder) as address, chromium() as driver:
        began = time.perf_counter()
        driver.get(address)
        wait_for_result(driver)
        seconds = time.perf_counter() - began
        for scale in SCALES:
            zoom(driver, scale)
            before = processor_time(driver)
            times = frame_times(driver)
            frames.append((times[len(times) // 2], 1000 * (processor_time(driver) - before) / len(times)))
        server = next(one for one in psutil.Process().children() if "view" in one.cmdline())
        memory = server.memory_info().rss / 1e6
    return seconds, memory, frames


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, nargs="+", default=[3_000, 300_000])
    counts = parser.parse_args().objects
    zooms = " | ".join("whole slide" if not scale else f"{scale:g}x" for scale in SCALES)
    print(f"| objects | until all is shown | server | {zooms} |")
    print("| ---: |" + " ---: |" * (2 + len(SCALES)))
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            seconds, memory, frames = measure(Path(folder), count)
        cells = " | ".join(f"{median:.0f} ({busy:.0f})" for median, busy in frames)
        print(f"| {count:,} | {seconds:.0f} s | {memory:.0f} MB | {cells} |", flush=True)
    print("\nMedian of 240 frames, and the processor's time for one in all processes of the browser, ms; 60 Hz allow 16.7 on each core.")


if __name__ == "__main__":
    main()
