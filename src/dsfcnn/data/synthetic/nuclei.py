"""H&E-like nuclei at 40x: nests of epithelium in a stroma of fibres, with lymphocytes; nuclei of several shapes, some of them touching.

A nucleus is an ellipse with a wavy outline, stained by haematoxylin: darker at its rim, with clumps of chromatin and, if it is large,
nucleoli. Where two would lie on each other the one with the lower hash stays, so a nucleus depends on its neighbours alone.
"""

from dataclasses import dataclass, fields

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.spatial import cKDTree

from dsfcnn.data.synthetic.fields import Window, cells, grain, noise, noise_at, stain, uniform

MARGIN = 4  # pixels that the blur reaches
_LARGEST = 13.0  # microns from the centre that a nucleus can reach
EPITHELIAL, LYMPHOCYTE, SPINDLE, TUMOUR = range(4)
#            half length, half width (microns), spread, wave of the outline, density, rim, clumps, chance of nucleoli: guessed from slides
_KINDS = {
    EPITHELIAL: (4.3, 3.3, 0.16, 0.05, 0.50, 0.25, 0.40, 0.6),
    LYMPHOCYTE: (2.9, 2.6, 0.10, 0.04, 0.85, 0.10, 0.35, 0.0),
    SPINDLE: (5.6, 1.6, 0.20, 0.05, 0.70, 0.10, 0.25, 0.0),
    TUMOUR: (6.2, 4.6, 0.24, 0.12, 0.48, 0.35, 0.60, 0.9),
}


@dataclass
class Nuclei:
    """Many nuclei, one array for each property: centre, half axes in microns, angle, kind and a number of their own."""

    x: np.ndarray
    y: np.ndarray
    length: np.ndarray
    width: np.ndarray
    angle: np.ndarray
    kind: np.ndarray
    key: np.ndarray

    def __len__(self) -> int:
        return len(self.x)

    def chosen(self, which: np.ndarray) -> "Nuclei":
        return Nuclei(*(getattr(self, field.name)[which] for field in fields(self)))

    def joined(self, other: "Nuclei") -> "Nuclei":
        return Nuclei(*(np.concatenate([getattr(self, field.name), getattr(other, field.name)]) for field in fields(self)))


@dataclass
class Canvas:
    """What is on the slide: densities of the two stains, and which object each pixel belongs to."""

    window: Window
    haematoxylin: np.ndarray
    eosin: np.ndarray
    instances: np.ndarray

    def photograph(self, seed: int, blur: float = 0.22, tint: tuple[float, float] = (1.0, 1.0), glass: float = 1.0) -> np.ndarray:
        """Light through it, blurred by ``blur`` microns of optics, with the camera's noise. uint8 (H, W, 3) without the margin."""
        light = stain(self.haematoxylin * tint[0] * glass, self.eosin * tint[1] * glass)
        light = gaussian_filter(light, (blur / self.window.mpp, blur / self.window.mpp, 0), truncate=3)
        light += 2.5 * grain(seed, self.window)
        inner = light[MARGIN:-MARGIN, MARGIN:-MARGIN]
        return np.clip(inner + 0.5, 0, 255).astype(np.uint8)

    def truth(self) -> np.ndarray:
        """Instance map without the margin, ids 1, 2, ..."""
        inner = self.instances[MARGIN:-MARGIN, MARGIN:-MARGIN]
        return np.unique(inner, return_inverse=True)[1].reshape(inner.shape).astype(np.int32) + (0 if (inner == 0).any() else 1)


def draw_nuclei(seed: int, window: Window, tumour: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Image uint8 (H, W, 3) and instances int32 (H, W) of a window; ``tumour`` is the share of epithelium that is malignant."""
    canvas = stroma(seed, window.grown(MARGIN))
    nest = nests(seed, canvas.window)
    add_cytoplasm(canvas, seed, nest)
    add_nuclei(canvas, seed, place_nuclei(seed, canvas.window, tumour))
    return canvas.photograph(seed, tint=stain_of(seed)), canvas.truth()


def stain_of(seed: int) -> tuple[float, float]:
    """Strength of the two stains: it differs from laboratory to laboratory, so from seed to seed."""
    return 0.85 + 0.35 * float(uniform(seed, 71)), 0.75 + 0.5 * float(uniform(seed, 72))


def stroma(seed: int, window: Window) -> Canvas:
    """Wavy fibres: the level lines of a smooth field. A few clefts where the tissue has torn."""
    x, y = window.x(), window.y()
    fine = noise(seed + 1, x, y, 1.2)
    phase = 11 * _flow(seed, x, y) + 0.25 * fine + 0.5 * noise(seed + 2, x, y, 5)
    fibres = (0.5 + 0.5 * np.sin(2 * np.pi * phase)) * (0.3 + 0.7 * noise(seed + 16, x, y, 9))
    cleft = _torn(0.7 * noise(seed + 3, x, y, 26) + 0.3 * noise(seed + 4, x, y, 7))
    eosin = (0.11 + 0.17 * fibres + 0.08 * noise(seed + 5, x, y, 18) + 0.06 * fine) * (1 - 0.9 * cleft)
    haematoxylin = (0.03 + 0.02 * fibres + 0.02 * fine) * (1 - cleft)
    return Canvas(window, haematoxylin, eosin, np.zeros((window.height, window.width), np.int32))


def _torn(level: np.ndarray) -> np.ndarray:
    return np.clip((level - 0.66) * 14, 0, 1)


def _is_torn_at(seed: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return _torn(0.7 * noise_at(seed + 3, x, y, 26) + 0.3 * noise_at(seed + 4, x, y, 7)) > 0.1


def _flow(seed: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return noise(seed + 6, x, y, 55) + 0.25 * noise(seed + 7, x, y, 17)


def _flow_angle(seed: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Direction of the fibres at scattered places."""

    def at(dx: float, dy: float) -> np.ndarray:
        return noise_at(seed + 6, x + dx, y + dy, 55) + 0.25 * noise_at(seed + 7, x + dx, y + dy, 17)

    return np.arctan2(at(0, 0.5) - at(0, -0.5), at(0.5, 0) - at(-0.5, 0)) + np.pi / 2


def nests(seed: int, window: Window) -> np.ndarray:
    """How much a pixel belongs to epithelium, 0 to 1."""
    x, y = window.x(), window.y()
    return _edge(0.75 * noise(seed + 8, x, y, 48) + 0.25 * noise(seed + 9, x, y, 15))


def _nests_at(seed: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return _edge(0.75 * noise_at(seed + 8, x, y, 48) + 0.25 * noise_at(seed + 9, x, y, 15))


def _edge(level: np.ndarray) -> np.ndarray:
    return np.clip((level - 0.47) * 18 + 0.5, 0, 1)


def add_cytoplasm(canvas: Canvas, seed: int, where: np.ndarray, eosin: float = 0.20, haematoxylin: float = 0.13) -> None:
    """Granular cytoplasm instead of fibres where there is epithelium."""
    x, y = canvas.window.x(), canvas.window.y()
    grains = 0.6 * noise(seed + 11, x, y, 0.8) + 0.4 * noise(seed + 12, x, y, 4)
    canvas.eosin += where * (eosin * (0.65 + 0.7 * grains) - canvas.eosin)
    canvas.haematoxylin += where * (haematoxylin * (0.6 + 0.8 * grains) - canvas.haematoxylin)


def place_nuclei(seed: int, window: Window, tumour: float = 0.0, density: float = 1.0) -> Nuclei:
    """Nuclei that can be seen in the window, each alone or touching a second one, none mostly under another."""
    spacing = 7.6 / np.sqrt(density)
    column, row = cells(window, spacing, 4 * _LARGEST)

    def random(number: int) -> np.ndarray:
        return uniform(seed, 100 + number, row, column)

    x, y = (column + random(0)) * spacing, (row + random(1)) * spacing
    nest = _nests_at(seed, x, y) > 0.5
    malignant = noise_at(seed + 10, x, y, 90) < tumour if tumour < 1 else np.ones(len(x), bool)
    kind = np.where(nest, np.where(malignant, TUMOUR, EPITHELIAL), np.where(random(2) < 0.55, SPINDLE, LYMPHOCYTE))
    kind = np.where(nest & (random(2) < 0.04), LYMPHOCYTE, kind)
    lymph = noise_at(seed + 13, x, y, 40)  # lymphocytes come in crowds
    crowd = np.where(kind == SPINDLE, 0.45, np.clip(3.2 * lymph - 1.6, 0.05, 0.95))
    there = nest | ((random(3) < crowd) & ~_is_torn_at(seed, x, y))
    angle = np.where(kind == SPINDLE, _flow_angle(seed, x, y) + 0.5 * (random(4) - 0.5), np.pi * random(4))
    return without_overlap(sized(seed, x, y, angle, kind, row * 1_000_003 + column).chosen(there))


def place_scattered(seed: int, window: Window, kinds: tuple[int, ...], spacing: float, share: float) -> Nuclei:
    """Nuclei of these kinds in a part ``share`` of the cells of a lattice, along the fibres where they are spindles."""
    column, row = cells(window, spacing, 4 * _LARGEST)
    random = [uniform(seed, 150 + number, row, column) for number in range(5)]
    x, y = (column + random[0]) * spacing, (row + random[1]) * spacing
    kind = np.asarray(kinds)[(random[2] * len(kinds)).astype(int)]
    angle = np.where(kind == SPINDLE, _flow_angle(seed, x, y) + 0.5 * (random[4] - 0.5), np.pi * random[4])
    there = (random[3] < share) & ~_is_torn_at(seed, x, y)
    return without_overlap(sized(seed, x, y, angle, kind, row * 1_000_003 + column).chosen(there))


def sized(seed: int, x: np.ndarray, y: np.ndarray, angle: np.ndarray, kind: np.ndarray, key: np.ndarray, scale: float = 1.0) -> Nuclei:
    """Nuclei of these kinds at these places, with sizes of their own."""
    table = np.array([_KINDS[number] for number in range(len(_KINDS))])[kind]
    size = scale * np.exp(table[:, 2] * 1.7 * (uniform(seed, 201, key) + uniform(seed, 202, key) - 1))
    slim = np.exp(0.25 * (uniform(seed, 203, key) - 0.5))
    length, width = np.minimum(table[:, 0] * size * slim, _LARGEST * 0.85), table[:, 1] * size / slim
    return Nuclei(x, y, length, np.minimum(width, length), angle, kind, key)


def without_overlap(nuclei: Nuclei, allowed: float = 0.86) -> Nuclei:
    """Of nuclei closer than ``allowed`` times the sum of their radii the one with the lowest hash stays: touching is allowed."""
    if len(nuclei) < 2:
        return nuclei
    places = np.stack([nuclei.x, nuclei.y], 1)
    priority = uniform(5, nuclei.key)
    pairs = cKDTree(places).query_pairs(2 * _LARGEST, output_type="ndarray")
    first, second = pairs[:, 0], pairs[:, 1]
    delta = places[second] - places[first]
    towards = np.arctan2(delta[:, 1], delta[:, 0])
    gap = _radius(nuclei, first, towards) + _radius(nuclei, second, towards)
    close = np.hypot(delta[:, 0], delta[:, 1]) < allowed * gap
    first, second = first[close], second[close]
    loser = np.where(priority[first] < priority[second], second, first)
    stays = np.ones(len(nuclei), bool)
    stays[loser] = False
    return nuclei.chosen(stays)


def _radius(nuclei: Nuclei, which: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Of the ellipse in a direction."""
    turned = direction - nuclei.angle[which]
    return 1 / np.hypot(np.cos(turned) / nuclei.length[which], np.sin(turned) / nuclei.width[which])


def add_nuclei(canvas: Canvas, seed: int, nuclei: Nuclei, as_objects: bool = True) -> None:
    """Draw them, those with the lowest hash on top; ids begin after those that are there."""
    texture = noise(seed + 14, canvas.window.x(), canvas.window.y(), 0.9) - 0.5
    texture += noise(seed + 15, canvas.window.x(), canvas.window.y(), 1.9) - 0.5
    start = int(canvas.instances.max())
    left, top, right, bottom = canvas.window.microns()
    seen = (nuclei.x > left - _LARGEST) & (nuclei.x < right + _LARGEST) & (nuclei.y > top - _LARGEST) & (nuclei.y < bottom + _LARGEST)
    nuclei = nuclei.chosen(seen)
    order = np.argsort(-uniform(5, nuclei.key), kind="stable")
    for number, index in enumerate(order, 1):
        _add_nucleus(canvas, seed, nuclei, int(index), start + number if as_objects else 0, texture)


def _add_nucleus(canvas: Canvas, seed: int, nuclei: Nuclei, index: int, number: int, texture: np.ndarray) -> None:
    window, mpp = canvas.window, canvas.window.mpp
    x, y, length, width = (float(value[index]) for value in (nuclei.x, nuclei.y, nuclei.length, nuclei.width))
    kind, key = int(nuclei.kind[index]), int(nuclei.key[index])
    reach = length * 1.3 + 2 * mpp
    left, right = (int(np.clip(np.floor((x + side * reach) / mpp) - window.left, 0, window.width)) for side in (-1, 1))
    top, bottom = (int(np.clip(np.floor((y + side * reach) / mpp) - window.top, 0, window.height)) for side in (-1, 1))
    if right <= left or bottom <= top:
        return
    here = (slice(top, bottom), slice(left, right))
    dx = ((window.left + np.arange(left, right) + 0.5) * mpp - x)[None, :]
    dy = ((window.top + np.arange(top, bottom) + 0.5) * mpp - y)[:, None]
    cos, sin = np.cos(nuclei.angle[index]), np.sin(nuclei.angle[index])
    along, across = (cos * dx + sin * dy) / length, (-sin * dx + cos * dy) / width
    _, _, _, wave, density, rim, clumps, spots = _KINDS[kind]
    random = uniform(seed, 300, key, np.arange(10))
    distance = np.hypot(along, across)
    if wave:
        azimuth = np.arctan2(across, along)
        phase = 2 * np.pi * random
        distance = distance / (
            1 + wave * (np.sin(2 * azimuth + phase[0]) + 0.8 * np.sin(3 * azimuth + phase[1]) + 0.5 * np.sin(5 * azimuth + phase[2]))
        )
    inside = distance < 1
    if number:
        canvas.instances[here][inside] = number
    sharp = np.clip((1 - distance) * (width / mpp) + 0.5, 0, 1)  # one pixel from in to out
    chromatin = density * (0.8 + 0.4 * random[3]) * (1 + clumps * 1.4 * texture[here])
    chromatin = chromatin + density * rim * np.exp(-(((distance - 0.88) / 0.14) ** 2))
    if random[4] < spots:
        for spot in range(1 + (random[5] < 0.4)):
            u, v = 0.9 * (random[6 + spot] - 0.5), 0.9 * (random[8 + spot] - 0.5)
            chromatin = chromatin + 0.45 * np.exp(-((along - u) ** 2 * length**2 + (across - v) ** 2 * width**2) / 0.75**2)
    canvas.haematoxylin[here] += sharp * (np.maximum(chromatin, 0.12) - canvas.haematoxylin[here])
    canvas.eosin[here] += sharp * (0.10 - canvas.eosin[here])
