"""Glands of the colon at 20x: a lumen, columnar epithelium with its nuclei at the base and pale goblet cells, stroma between them.

A gland is a wavy ellipse. Its epithelium is the part beyond the lumen's radius; its nuclei stand side by side along the outline,
pointing to the centre. Neighbours keep apart by the rule of the nuclei: of two that would meet, the one with the lower hash stays.
"""

from dataclasses import dataclass

import numpy as np

from dsfcnn.data.synthetic.fields import Window, cells, noise, uniform
from dsfcnn.data.synthetic.nuclei import (
    EPITHELIAL,
    LYMPHOCYTE,
    MARGIN,
    SPINDLE,
    Canvas,
    Nuclei,
    add_nuclei,
    place_scattered,
    sized,
    stain_of,
    stroma,
    without_overlap,
)

_SPACING = 78.0  # microns between the cells in which at most one gland has its centre
_LARGEST = 68.0  # microns from its centre that a gland can reach: 58 and waves of 17 %


@dataclass(frozen=True)
class Gland:
    """A wavy ellipse: r(t) = ellipse(t) (1 + waves(t)); ``lumen`` is the part of the radius that is open."""

    x: float
    y: float
    length: float
    width: float
    angle: float
    lumen: float
    key: int
    waves: np.ndarray  # two phases and two heights

    def reach(self) -> float:
        """Microns from the centre within which all of it lies."""
        return self.length * (1 + self.waves[2] + self.waves[3])

    def radius(self, azimuth: np.ndarray) -> np.ndarray:
        """Microns from the centre to the outline."""
        turned = azimuth - self.angle
        ellipse = 1 / np.hypot(np.cos(turned) / self.length, np.sin(turned) / self.width)
        return ellipse * (1 + self.waves[2] * np.sin(2 * azimuth + self.waves[0]) + self.waves[3] * np.sin(3 * azimuth + self.waves[1]))


def draw_glands(seed: int, window: Window) -> tuple[np.ndarray, np.ndarray]:
    """Image uint8 (H, W, 3) and instances int32 (H, W), an object for each gland."""
    canvas = stroma(seed, window.grown(MARGIN))
    glands = place_glands(seed, canvas.window)
    for number, gland in enumerate(glands, 1):
        _add_gland(canvas, seed, gland, number)
    between = place_scattered(seed, canvas.window, (SPINDLE, LYMPHOCYTE), spacing=9.5, share=0.45)
    nuclei = between.chosen(~_is_in(glands, between.x, between.y, 4.0))
    for gland in glands:
        nuclei = nuclei.joined(_epithelial_nuclei(seed, gland))
    add_nuclei(canvas, seed, without_overlap(nuclei, 0.7), as_objects=False)
    return canvas.photograph(seed, blur=0.3, tint=stain_of(seed)), canvas.truth()


def place_glands(seed: int, window: Window) -> list[Gland]:
    """Every gland that can be seen in the window, in an order of their own."""
    column, row = cells(window, _SPACING, 3 * _LARGEST)
    random = [uniform(seed, 400 + number, row, column) for number in range(12)]
    glands = []
    for i, (c, r) in enumerate(zip(column, row)):
        u = [float(numbers[i]) for numbers in random]
        length = 28 + 30 * u[2]
        waves = np.array([2 * np.pi * u[3], 2 * np.pi * u[4], 0.02 + 0.07 * u[5], 0.02 + 0.06 * u[6]])
        place = ((c + 0.15 + 0.7 * u[0]) * _SPACING, (r + 0.15 + 0.7 * u[1]) * _SPACING)
        key = int(r) * 1_000_003 + int(c)
        glands.append(Gland(*place, length, length * (0.5 + 0.45 * u[7]), np.pi * u[8], 0.22 + 0.4 * u[9], key, waves))
    left, top, right, bottom = window.microns()
    return [
        gland
        for gland in glands
        if left - gland.reach() < gland.x < right + gland.reach()
        and top - gland.reach() < gland.y < bottom + gland.reach()
        and all(_stays_beside(gland, other) for other in glands if other is not gland)
    ]


def _stays_beside(gland: Gland, other: Gland) -> bool:
    """Whether there is room for both, or ``gland`` has the lower hash."""
    towards = np.arctan2(other.y - gland.y, other.x - gland.x)
    room = np.hypot(other.x - gland.x, other.y - gland.y) - gland.radius(towards) - other.radius(towards + np.pi)
    return bool(room > 2.0 or uniform(6, gland.key) < uniform(6, other.key))


def _is_in(glands: list[Gland], x: np.ndarray, y: np.ndarray, margin: float) -> np.ndarray:
    """Which places lie in one of the glands or up to ``margin`` beside it."""
    inside = np.zeros(len(x), bool)
    for gland in glands:
        dx, dy = x - gland.x, y - gland.y
        inside |= np.hypot(dx, dy) < gland.radius(np.arctan2(dy, dx)) + margin
    return inside


def _add_gland(canvas: Canvas, seed: int, gland: Gland, number: int) -> None:
    window = canvas.window
    x, y = window.x(), window.y()
    columns, rows = (np.flatnonzero(np.abs(places - centre) < gland.reach()) for places, centre in ((x, gland.x), (y, gland.y)))
    if not len(columns) or not len(rows):
        return
    here = (slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1))
    dx, dy = x[here[1]][None, :] - gland.x, y[here[0]][:, None] - gland.y
    azimuth, distance = np.arctan2(dy, dx), np.hypot(dx, dy)
    radius = gland.radius(azimuth)
    inside = np.clip((radius - distance) / window.mpp + 0.5, 0, 1)
    canvas.instances[here][distance < radius] = number
    fine = noise(seed + 21, x[here[1]], y[here[0]], 1.5)
    patches = noise(seed + 22, x[here[1]], y[here[0]], 6)
    ragged = gland.lumen * radius + 5 * (patches - 0.5) + 2 * (fine - 0.5)  # the cells' ends do not make a smooth line
    lumen = np.clip((ragged - distance) / 1.5 + 0.5, 0, 1)
    # Goblet cells: pale drops between the nuclei and the lumen.
    depth = (distance - ragged) / np.maximum(radius - ragged, 1)
    goblet = np.clip((patches - 0.52) * 7, 0, 1) * np.exp(-(((depth - 0.35) / 0.22) ** 2))
    eosin = (0.17 + 0.10 * fine) * (1 - 0.65 * goblet) * (1 - 0.93 * lumen) + 0.03 * lumen * patches
    haematoxylin = (0.13 + 0.07 * fine) * (1 - 0.35 * goblet) * (1 - 0.95 * lumen)
    canvas.eosin[here] += inside * (eosin - canvas.eosin[here])
    canvas.haematoxylin[here] += inside * (haematoxylin - canvas.haematoxylin[here])


def _epithelial_nuclei(seed: int, gland: Gland) -> Nuclei:
    """A row along the outline, pointing inwards, and a few in a second row."""
    length = 2 * np.pi * np.sqrt((gland.length**2 + gland.width**2) / 2)
    count = int(length / 4.2)
    place = np.arange(count)
    key = gland.key * 4096 + place

    def random(number: int) -> np.ndarray:
        return uniform(seed, 420 + number, key)

    azimuth = 2 * np.pi * (place + 0.5 * random(0)) / count
    second_row = random(1) < 0.25
    depth = np.where(second_row, 10.5, 5.2) + 2.0 * (random(2) - 0.5)
    distance = np.maximum(gland.radius(azimuth) - depth, 1.0)
    x, y = gland.x + distance * np.cos(azimuth), gland.y + distance * np.sin(azimuth)
    nuclei = sized(seed, x, y, azimuth + 0.5 * (random(3) - 0.5), np.full(count, EPITHELIAL), key, scale=0.92)
    nuclei.width *= 0.72  # columnar cells are slim
    room = (1 - gland.lumen) * gland.radius(azimuth) > depth + 3
    return nuclei.chosen(room)
