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
# Atoms of frequency 0, and others, that are summed at the same time: as many sums as there are vector registers, or nearly.
_AT_ONCE = {False: 6, True: 4}


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
    """Atoms whose filters share their taps, a few at a time."""
    kinds: dict[tuple[tuple[Tap, ...], ...], list[int]] = {}
    for atom, parts in enumerate(_parts(kernel_size)):
        # k = 0 also has the centre: filters of one pass need one list of taps
        kinds.setdefault(tuple(tuple(taps(part, kernel_size)) for part in parts), []).append(atom)
    return [
        members[i : i + _AT_ONCE[len(lists) == 2]]
        for lists, members in kinds.items()
        for i in range(0, len(members), _AT_ONCE[len(lists) == 2])
    ]


def coefficient_places(kernel_size: int) -> list[tuple[int, bool, int, int]]:
    """(atom, imaginary, row, column) of every coefficient, in the order of the generated code."""
    half, parts = kernel_size // 2, _parts(kernel_size)
    return [
        (atom, part.imaginary, half + tap.dy, half + tap.dx)
        for members in passes(kernel_size)
        for part in parts[members[0]]
        for tap in taps(part, kernel_size)
        for atom in members
    ]


def _parts(kernel_size: int) -> list[list[Filter]]:
    """The filters of every atom: its real part, and its imaginary one if it has any."""
    everything = filters(kernel_size)
    return [[f for f in everything if f.atom == atom] for atom in range(sum(not f.imaginary for f in everything))]


def write_bank(kernel_size: int) -> str:
    """The C source of ``bank<K>``: responses of all filters for two planes, in the rows of one tile.

    The right half of a tile's row stands beside the left one, or ``down`` rows below it. Generated code only folds and multiplies. What
    becomes of the responses is in gconv.c, in ``route_flat`` and ``route``.
    """
    half, parts = kernel_size // 2, _parts(kernel_size)
    sums = 2 * half + 1  # of a row: the pixel itself, h sums and h differences
    lines = [
        f"INLINE void bank{kernel_size}(const float *restrict re, const float *restrict im, long stride, long rows, long down,",
        "    const float *restrict coefficient, const struct route *restrict routes, const int real_pair,",
        "    float *restrict out, long row_step) {",
        f"  float folded[2][MAX_ROWS + {2 * half}][{sums}][TILE] __attribute__((aligned(64)));",
        f"  const long columns = down ? TILE / 2 : TILE, right = down ? down * {sums} * TILE : TILE / 2;",
        f"  fold_rows(re, stride, rows + down + {2 * half}, columns, {half}, &folded[0][0][0][0]);",
        f"  fold_rows(im, stride, rows + down + {2 * half}, columns, {half}, &folded[1][0][0][0]);",
    ]
    for members in passes(kernel_size):
        lines += [
            "  for (long row = 0; row < rows; row++)",
            "    for (long x = 0; x < TILE; x += 8) {",
            f"      const float *a = folded[0][row + {half}][0] + (x ? right : 0), *b = folded[1][row + {half}][0] + (x ? right : 0);",
            "      const float *c = coefficient;",
            "      float *to = out + row * row_step + x;",
        ]
        for part in parts[members[0]]:
            name = "s" if part.imaginary else "c"  # sums of the sine or cosine: s0a is that of the first atom and plane a
            lines.append(f"      v8 {', '.join(f'{name}{i}{plane} = ZERO' for i in range(len(members)) for plane in 'ab')};")
            for tap in taps(part, kernel_size):
                lines.append(f"      {{ v8 s = {_value('a', tap, half)}, t = {_value('b', tap, half)};")
                lines += [f"        {{ v8 w = SPLAT(c[{i}]); {name}{i}a += w * s; {name}{i}b += w * t; }}" for i in range(len(members))]
                lines.append(f"        c += {len(members)}; BARRIER }}")
        for i, atom in enumerate(members):
            if parts[atom][0].frequency == 0:
                lines.append(f"      route_flat(to, routes + {2 * atom}, real_pair, c{i}a, c{i}b);")
            else:
                lines.append(f"      route(to, routes + {2 * atom}, real_pair, c{i}a, c{i}b, s{i}a, s{i}b);")
        count = len(members) * sum(len(list(taps(part, kernel_size))) for part in parts[members[0]])
        lines += ["    }", f"  coefficient += {count};"]
    return "\n".join([*lines, "}"]) + "\n"


def _value(plane: str, tap: Tap, half: int) -> str:
    """The pixels of a tap, added and subtracted; ``plane`` points at the folded row of the output pixel."""

    def pixel(dx: int, dy: int) -> str:
        return f"AT({plane}, {(dy * (2 * half + 1) + (half + dx if tap.odd_x and dx else dx)) * 16})"

    def up_down(dx: int, dy: int) -> str:
        return f"({pixel(dx, dy)} {'-' if tap.odd_y else '+'} {pixel(dx, -dy)})" if dy else pixel(dx, 0)

    straight = up_down(tap.dx, tap.dy)
    return f"{straight} {'+' if tap.exchange > 0 else '-'} {up_down(tap.dy, tap.dx)}" if tap.exchange else straight


def write_banks() -> str:
    """The file that gconv.c includes."""
    return "/* Written by bank.py. */\n" + "\n".join(write_bank(kernel_size) for kernel_size in KERNEL_SIZES)
