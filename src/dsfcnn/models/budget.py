"""How wide each network of the comparison is, so that all have about the same number of parameters (paper section V-C).

A hidden layer with C filters has C^2 times the numbers of one filter, so widths go with the square root of that number. The paper's rules
for H-Net, VF-CNN and steerable networks, read literally, miss its own parameter columns by half; with the square root they meet them:

==========  =====================================  =====================================================
family      width of a CNN's C filters             numbers per pair of maps, beside the CNN's K^2
==========  =====================================  =====================================================
gcnn        C / sqrt(n)                            n K^2
steerable   C K / sqrt(k n)                        n k, with k = 22 stored reals of a 7x7 filter
vfcnn       C / sqrt(2)                            2 K^2: two components per pixel
hnet        C K / sqrt(M (N + 1))                  M = 2 m + 1 frequencies of N = 4 rings and a phase each
==========  =====================================  =====================================================
"""

import math

from dsfcnn.basis import frequency_limits
from dsfcnn.errors import UsageError
from dsfcnn.groups import Group
from dsfcnn.layers.harmonic import RINGS

KERNEL_SIZE = 7
FAMILIES = ("cnn", "hnet", "vfcnn", "gcnn", "steerable")

# Widths of the plain CNN. Histology: one per level, two convolutions each. Digits: one per convolution.
HISTOLOGY = (22, 24, 32, 44, 48)
DIGITS = (22, 22, 32, 32, 48, 48, 48)

# Where plain rounding of the rule misses the paper's figure by more than the other direction of rounding would, the widths are rounded as
# here. All are the floor or the ceiling of the rule, but those of H-Net 2 (0.982 times the rule: its larger batch norms count) and the
# fourth of H-Net 1 (78 for 79.5).
_ROUNDED_OTHERWISE = {
    "hnet 1": (39, 43, 57, 78, 86),
    "hnet 2": (30, 33, 44, 60, 66),
    "vfcnn": (15, 16, 23, 32, 33),
    "gcnn C12": (6, 7, 10, 12, 14),
    "steerable C1": (33, 35, 48, 65, 71),
    "steerable C4": (17, 17, 24, 33, 35),
    "steerable C8": (11, 13, 17, 23, 26),
    "steerable C12": (10, 11, 13, 19, 20),
}


def rule(family: str, group: Group, max_frequency: int = 1) -> float:
    """Width of a family's layer over that of the plain CNN's.

    >>> from dsfcnn.groups import parse_group
    >>> round(rule("gcnn", parse_group("C4")), 4), round(rule("steerable", parse_group("C8")), 4)
    (0.5, 0.5276)
    """
    pixels = KERNEL_SIZE**2
    numbers = {
        "cnn": pixels,
        "gcnn": group.size * pixels,
        "steerable": group.size * 2 * sum(limit + 1 for limit in frequency_limits(KERNEL_SIZE)),
        "vfcnn": 2 * pixels,
        "hnet": (2 * max_frequency + 1) * (RINGS + 1),
    }
    if family not in numbers:
        raise UsageError(f"no family {family!r}; use one of {', '.join(FAMILIES)}")
    return math.sqrt(pixels / numbers[family])


def widths(family: str, base: tuple[int, ...], group: Group, max_frequency: int = 1, width: float = 1.0) -> list[int]:
    """Fields of each layer (or level) of a family's network, from those of the plain CNN, times a factor for lighter versions."""
    variant = {"hnet": f"hnet {max_frequency}", "vfcnn": "vfcnn"}.get(family, f"{family} {group}")
    if base == HISTOLOGY and variant in _ROUNDED_OTHERWISE:
        exact: tuple[float, ...] = _ROUNDED_OTHERWISE[variant]
    else:
        exact = tuple(fields * rule(family, group, max_frequency) for fields in base)
    return [max(1, round(fields * width)) for fields in exact]
