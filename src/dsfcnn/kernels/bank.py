"""Writes the C function that applies the fixed atoms of one kernel size: the bank.

The spectral G-convolution filters every plane with every atom, real and imaginary part: 18 filters of 7x7. Sampled circular harmonics
have the symmetry of the square, so most multiplications can be shared. What becomes of an atom when places are exchanged:

=================  ============  ============  =====================================================================
part               left, right   up, down      exchange of dx and dy
=================  ============  ============  =====================================================================
cos, k = 0, 4      even          even          even: the four or eight places of a tap have one coefficient
sin, k = 4         odd           odd           odd
cos, k = 2         even          even          odd
sin, k = 2         odd           odd           even
cos, k = 1, 3      odd           even          becomes the sine
sin, k = 1, 3      even          odd           becomes the cosine
=================  ============  ============  =====================================================================

So pixels are first added and subtracted in pairs, left with right (once for all rows), then up with down, then across the diagonal,
and each sum is multiplied once. 7x7 takes 172 multiply-adds per pixel instead of 882.

The function works on two planes at once, which are the real and imaginary part of an orientation frequency, and on vectors of 8 pixels.
Its coefficients come from a table in the order of ``coefficient_places``, so this file knows no numbers. Nothing here needs torch or
numpy: it runs when the package is built.
"""

from collections.abc import Iterator
from typing import NamedTuple

FREQUENCY_LIMITS = {3: (0, 2), 5: (0, 2, 2), 7: (0, 2, 3, 2), 9: (0, 3, 4, 4, 3)}
KERNEL_SIZES = tuple(FREQUENCY_LIMITS)
_AT_ONCE = 6  # filters that are summed at the same time: 12 accumulators of the 16 vector registers


class Filter(NamedTuple):
    """One real filter of the bank."""

    atom: int  # in the order of dsfcnn.basis.sample_atoms
    frequency: int
    imaginary: bool


class Tap(NamedTuple):
    """Places whose pixels are added or subtracted before one multiplication; the coefficient is that of (dx, dy)."""

    dx: int
    dy: int
    odd_x: bool
    odd_y: bool
    exchange: int  # +1 or -1: also the places with dx and dy exchanged, added or subtracted; 0: not


def filters(kernel_size: int) -> list[Filter]:
    """All filters, real parts of the atoms first, as in the live weights of a steerable filter."""
    frequencies = [k for limit in FREQUENCY_LIMITS[kernel_size] for k in range(limit + 1)]
    real = [Filter(atom, k, False) for atom, k in enumerate(frequencies)]
    return real + [Filter(atom, k, True) for atom, k in enumerate(frequencies) if k > 0]


def taps(filter: Filter, kernel_size: int) -> Iterator[Tap]:
    """The distinct taps of a filter, after folding."""
    half, k = kernel_size // 2, filter.frequency
    if k % 2 == 1:
        for small in range(half + 1):
            for large in range(1, half + 1):
                yield Tap(small, large, False, True, 0) if filter.imaginary else Tap(large, small, True, False, 0)
        return
    odd = filter.imaginary
    symmetric = (k % 4 == 0) != filter.imaginary
    for dy in range(half + 1):
        for dx in range(dy, half + 1):
            if dx == dy == 0 and k > 0:
                continue  # the centre is zero
            if (odd and dy == 0) or (dx == dy and not symmetric):
                continue  # antisymmetric parts vanish on the axes, or on the diagonals
            yield Tap(dx, dy, odd, odd, 0 if dx == dy else (1 if symmetric else -1))


def passes(kernel_size: int) -> list[list[int]]:
    """Filters that share their taps, by number in ``filters``, a few at a time."""
    kinds: dict[tuple[Tap, ...], list[int]] = {}
    for number, filter in enumerate(filters(kernel_size)):
        # k = 0 also has the centre: filters of one pass need one list of taps
        kinds.setdefault(tuple(taps(filter, kernel_size)), []).append(number)
    return [members[i : i + _AT_ONCE] for members in kinds.values() for i in range(0, len(members), _AT_ONCE)]


def coefficient_places(kernel_size: int) -> list[tuple[int, bool, int, int]]:
    """(atom, imaginary, row, column) of every coefficient, in the order of the generated code."""
    half, all_filters = kernel_size // 2, filters(kernel_size)
    return [
        (all_filters[number].atom, all_filters[number].imaginary, half + tap.dy, half + tap.dx)
        for members in passes(kernel_size)
        for tap in taps(all_filters[members[0]], kernel_size)
        for number in members
    ]


def write_bank(kernel_size: int) -> str:
    """The C source of ``bank<K>``: responses of all filters for two planes, one tile of TILE columns.

    Generated code only folds and multiplies. What becomes of the responses is in gconv.c, in ``route_responses``.
    """
    half, all_filters = kernel_size // 2, filters(kernel_size)
    sums = 2 * half + 1  # of a row: the pixel itself, h sums and h differences
    lines = [
        f"static void bank{kernel_size}(const float *restrict re, const float *restrict im, long stride, long rows,",
        "    const float *restrict coefficient, const struct route *restrict routes, int real_pair, float *restrict out, long row_step) {",
        f"  float folded[2][MAX_ROWS + {2 * half}][{sums}][TILE] __attribute__((aligned(64)));",
        f"  fold_rows(re, stride, rows + {2 * half}, {half}, &folded[0][0][0][0]);",
        f"  fold_rows(im, stride, rows + {2 * half}, {half}, &folded[1][0][0][0]);",
        "  for (long row = 0; row < rows; row++) {",
        f"    v8 response[{len(all_filters)}][2][2]; /* filter, plane, half of the tile */",
        "    for (long x = 0; x < TILE; x += 8) {",
        "    const float *c = coefficient;",
        f"    const float *a = &folded[0][row + {half}][0][x], *b = &folded[1][row + {half}][0][x];",
    ]
    step = sums * 16  # floats from row to row in folded

    def pixel(plane: str, odd_x: bool, dx: int, dy: int) -> str:
        return f"AT({plane}, {dy * step + (half + dx if odd_x and dx else dx) * 16})"

    def up_down(plane: str, tap: Tap, dx: int, dy: int) -> str:
        if dy == 0:
            return pixel(plane, tap.odd_x, dx, 0)
        return f"({pixel(plane, tap.odd_x, dx, dy)} {'-' if tap.odd_y else '+'} {pixel(plane, tap.odd_x, dx, -dy)})"

    def value(plane: str, tap: Tap) -> str:
        straight = up_down(plane, tap, tap.dx, tap.dy)
        if tap.exchange == 0:
            return straight
        return f"{straight} {'+' if tap.exchange > 0 else '-'} {up_down(plane, tap, tap.dy, tap.dx)}"

    for members in passes(kernel_size):
        names = ", ".join(f"p{i} = ZERO, q{i} = ZERO" for i in range(len(members)))
        lines.append(f"    {{ v8 {names};")
        for tap in taps(all_filters[members[0]], kernel_size):
            lines.append(f"      {{ v8 s = {value('a', tap)}, t = {value('b', tap)};")
            for i in range(len(members)):
                lines.append(f"        {{ v8 w = SPLAT(c[{i}]); p{i} += w * s; q{i} += w * t; }}")
            lines.append(f"        c += {len(members)}; BARRIER }}")
        for i, number in enumerate(members):
            lines.append(f"      response[{number}][0][x / 8] = p{i}; response[{number}][1][x / 8] = q{i};")
        lines.append("    }")
    lines += [
        "    }",
        f"    route_responses({sum(not f.imaginary for f in all_filters)}, response, routes, real_pair, out + row * row_step);",
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def write_banks() -> str:
    """The file that gconv.c includes."""
    return "/* Written by bank.py. */\n" + "\n".join(write_bank(kernel_size) for kernel_size in KERNEL_SIZES)
