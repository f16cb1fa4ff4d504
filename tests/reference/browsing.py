"""The viewer in a real browser: starts the server and Debian's chromium, waits, and measures frames."""

import json
import subprocess
import sys
import time
from contextlib import contextmanager

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
WINDOW = (1400, 1020)
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # as root it would not start with one
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size={},{}".format(*WINDOW),
)

# Moves the view along a circle, some pixels a frame, and gives the time of every frame in milliseconds.
PAN = """
const [frames, done] = arguments, viewport = window.dsfcnnView.viewer.viewport, times = [];
let last = null;
function step(now) {
  if (last !== null) times.push(now - last);
  last = now;
  if (times.length === frames) return done(times);
  const angle = 2 * Math.PI * times.length / 120;
  viewport.panBy(viewport.deltaPointsFromPixels(new OpenSeadragon.Point(14 * Math.cos(angle), 9 * Math.sin(angle))));
  requestAnimationFrame(step);
}
requestAnimationFrame(step);
"""

# What holds in one frame may be left over from before a key was pressed; in the third it is about the view as it is now.
SETTLE = """
const done = arguments[0], view = window.dsfcnnView, viewport = view.viewer.viewport;
let frames = 0;
function rests() {
  const near = (now, aim) => Math.abs(now - aim) <= 1e-6 * Math.max(1, Math.abs(aim));
  const [now, aim] = [viewport.getCenter(true), viewport.getCenter(false)];
  return near(now.x, aim.x) && near(now.y, aim.y) && near(viewport.getZoom(true), viewport.getZoom(false))
    && [...view.layers.values()].every((item) => item && (item.opacity === 0 || item.getFullyLoaded()));
}
function look() {
  frames = rests() ? frames + 1 : 0;
  if (frames === 3) done();
  else requestAnimationFrame(look);
}
look();
"""


@contextmanager
def viewing(out, *options):
    """The address of ``dsfcnn view`` for a folder."""
    command = [sys.executable, "-m", "dsfcnn", "view", str(out), *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def chromium():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(600)
    try:
        yield driver
    finally:
        driver.quit()


def wait(driver, condition, seconds=600):
    """Until a piece of JavaScript is true; its value."""
    end = time.monotonic() + seconds
    while not (found := driver.execute_script(f"return {condition}")):
        assert time.monotonic() < end, f"{condition}: not within {seconds} s"
        time.sleep(0.1)
    return found


def wait_for_result(driver, name):
    """Until a result is read and its tiles are drawn."""
    wait(driver, f"window.dsfcnnView?.info?.name === {json.dumps(name)} && !window.dsfcnnView.info.busy")
    settle(driver)


def settle(driver):
    """Until the view has reached its aim and every tile of it is there."""
    driver.execute_async_script(SETTLE)


def frame_times(driver, frames=240):
    """Of panning, sorted, in milliseconds."""
    return sorted(driver.execute_async_script(PAN, frames))
