"""Patches at 10x as in PatchCamelyon: a lymph node with its small dark nuclei, or tumour with large, pale and irregular ones.

Stain, crowding and share of stroma differ from patch to patch alike in both classes, so the colour alone does not tell them apart.
"""

import numpy as np

from dsfcnn.data.synthetic.fields import Window, noise, uniform
from dsfcnn.data.synthetic.nuclei import (
    EPITHELIAL,
    LYMPHOCYTE,
    MARGIN,
    SPINDLE,
    TUMOUR,
    add_cytoplasm,
    add_nuclei,
    place_scattered,
    stain_of,
    stroma,
)


def draw_tumour(seed: int, window: Window, label: int) -> np.ndarray:
    """Image uint8 (H, W, 3): normal (0) or tumour (1)."""
    canvas = stroma(seed, window.grown(MARGIN))
    x, y = canvas.window.x(), canvas.window.y()
    cellular = np.clip((noise(seed + 31, x, y, 60) - 0.25) * 6, 0, 1)
    crowd = 0.45 + 0.4 * float(uniform(seed, 500))
    if label:
        add_cytoplasm(canvas, seed, cellular, eosin=0.21)
        nuclei = place_scattered(seed, canvas.window, (TUMOUR, TUMOUR, TUMOUR, LYMPHOCYTE), spacing=9.5, share=crowd + 0.1)
    else:
        add_cytoplasm(canvas, seed, cellular, eosin=0.17)
        kinds = (LYMPHOCYTE, LYMPHOCYTE, LYMPHOCYTE, EPITHELIAL, SPINDLE)
        nuclei = place_scattered(seed, canvas.window, kinds, spacing=6.6, share=crowd)
    add_nuclei(canvas, seed, nuclei)
    return canvas.photograph(seed, blur=0.5, tint=stain_of(seed))
