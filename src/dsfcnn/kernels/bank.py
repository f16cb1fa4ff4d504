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

In place of the atoms of one frequency, any combinations of them serve as well, if weights are combined too. The bank applies those that
are 1 at the place (r, 0) of their own ring r, and 0 at those of the others: these products are not needed, which leaves 127. Where this
file says atom, it means such a combination. tables.py makes them.

The function works on two planes at once, which are the real and imaginary part of an orientation frequency, and on vectors of 8 pixels,
or of 16 where there is AVX-512. Loads and stores bound it no less than multiplications. So what is read once serves as often as it can:
sums across the diagonal come with the differences that another pass needs, sines of odd frequencies take the coefficients of their
cosines, and for common numbers of orientations the places of the responses are constants in the code.

Coefficients come from a table in the order of ``coefficients``, so this file knows no numbers. Nothing here needs torch or
numpy: it runs when the package is built.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

FREQUENCY_LIMITS = {3: (0, 2), 5: (0, 2, 2), 7: (0, 2, 3, 2), 9: (0, 3, 4, 4, 3)}
KERNEL_SIZES = tuple(FREQUENCY_LIMITS)
REGISTERS = (16, 32)  # of vectors, that a processor may have: with AVX2, and with AVX-512
CHUNK, TILE = 4, 16  # as in gconv.c
ROUTED = (8,)  # numbers of orientations for which the places of responses are compiled: the default


class Filter(NamedTuple):
    """One real filter of the bank."""

    atom: int  # in the order of dsfcnn.basis.sample_atoms
    frequency: int
    imaginary: bool


def rings(kernel_size: int) -> list[int]:
    """The ring of every atom."""
    return [ring for ring, limit in enumerate(FREQUENCY_LIMITS[kernel_size]) for _ in range(limit + 1)]


class Tap(NamedTuple):
    """Places whose pixels are added or subtracted before one multiplication; the coefficient is that of (dx, dy)."""

    dx: int
    dy: int
    odd_x: bool
    odd_y: bool
    exchange: int  # +1 or -1: also the places with dx and dy exchanged, added or subtracted; 0: not


@cache
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


def alike(kernel_size: int) -> list[list[int]]:
    """Atoms whose filters share their taps; k = 0 also has the centre, so k = 4 does not go with it."""
    kinds: dict[tuple[tuple[Tap, ...], ...], list[int]] = {}
    for atom, parts in enumerate(_parts(kernel_size)):
        kinds.setdefault(tuple(tuple(taps(part, kernel_size)) for part in parts), []).append(atom)
    return list(kinds.values())


def passes(kernel_size: int, registers: int) -> list[list[int]]:
    """Atoms that are summed at the same time: as many sums, of two planes, as there are vector registers, or nearly."""
    parts = _parts(kernel_size)
    found = []
    for members in alike(kernel_size):
        at_once = 3 * registers // 8 if len(parts[members[0]]) == 1 else registers // 4
        found += [members[i : i + at_once] for i in range(0, len(members), at_once)]
    return found


class Coefficient(NamedTuple):
    """The number of an atom's cosine, or sine, at a place."""

    atom: int
    imaginary: bool
    dy: int
    dx: int


def coefficients(kernel_size: int) -> list[Coefficient]:
    """Those that the generated code reads, in the order of the table."""
    parts = _parts(kernel_size)
    every = dict.fromkeys(
        _coefficient(part._replace(atom=atom), tap)
        for members in alike(kernel_size)
        for part in parts[members[0]]
        for tap in taps(part, kernel_size)
        for atom in members
    )
    return [coefficient for coefficient in every if known(coefficient, kernel_size) is None]


def known(coefficient: Coefficient, kernel_size: int) -> int | None:
    """1 at the place of an atom's own ring and 0 at those of others of its frequency; elsewhere None."""
    atom, imaginary, dy, dx = coefficient
    ring, frequencies = rings(kernel_size), [parts[0].frequency for parts in _parts(kernel_size)]
    same = [ring[other] for other, k in enumerate(frequencies) if k == frequencies[atom]]
    return int(dx == ring[atom]) if not imaginary and dy == 0 and dx in same else None


@cache
def multiply_adds(kernel_size: int) -> int:
    """Per pixel of a plane."""
    numbers = (_coefficient(part, tap) for part in filters(kernel_size) for tap in taps(part, kernel_size))
    return sum(known(number, kernel_size) is None for number in numbers)


def _coefficient(part: Filter, tap: Tap) -> Coefficient:
    """Whose number a tap multiplies with: sines of odd frequency take those of the cosine."""
    if part.imaginary and part.frequency % 2:
        return Coefficient(part.atom, False, tap.dx, tap.dy)
    return Coefficient(part.atom, part.imaginary, tap.dy, tap.dx)


def sine_sign(frequency: int) -> int:
    """A sine of odd frequency at (dx, dy) is the cosine at (dy, dx) times this."""
    return -1 if frequency % 4 == 1 else 1  # rows count downwards


def _parts(kernel_size: int) -> list[list[Filter]]:
    """The filters of every atom: its real part, and its imaginary one if it has any."""
    everything = filters(kernel_size)
    return [[f for f in everything if f.atom == atom] for atom in range(sum(not f.imaginary for f in everything))]


NOWHERE, COMPLEX, REAL, SINGLE = range(4)  # enum route_kind of gconv.c


class Source(NamedTuple):
    """Where a row of a product comes from: a response X(m) * psi, or X(m) * conj psi, and whether its conjugate is meant."""

    frequency: int  # 0 .. n / 2
    conjugate_atom: bool
    conjugate: bool


class Destination(NamedTuple):
    """One row (or two) of one product, and the response that fills it."""

    atom: int
    output: int  # frequency of the product
    row: int
    kind: int
    plus: bool  # whether the response is that of frequency m + k, not m - k
    source: Source
    sign: int  # -1 where the row holds the conjugate of what is meant


class Route(NamedTuple):
    """struct route of gconv.c."""

    offset: int = 0
    step: int = 0
    kind: int = NOWHERE
    sign: int = 1


def source(output: int, frequency: int, plus: bool, n: int) -> Source:
    """The response that output frequency m needs of an atom: X(m + k) * psi (plus) or X(m - k) * conj psi.

    Fields are real, so X(-m) = conj X(m), and conj X * psi = conj(X * conj psi).
    """
    wanted = (output + frequency if plus else output - frequency) % n
    if wanted <= n // 2:
        return Source(wanted, conjugate_atom=not plus, conjugate=False)
    return Source(n - wanted, conjugate_atom=plus, conjugate=True)


def product(output: int, n: int) -> int:
    """The number of the (first) product of an output frequency: 0 and n / 2 have one each, the others three."""
    return {0: 0, n // 2: 1}.get(output, 3 * output - 1)


def rows(kernel_size: int) -> dict[int, int]:
    """The row of a product that each atom's first response fills: one row for atoms of frequency 0, which come first, two for others."""
    atoms = sorted(_parts(kernel_size), key=len)  # an atom of frequency 0 has one part
    return {parts[0].atom: sum(len(before) for before in atoms[:i]) for i, parts in enumerate(atoms)}


def destinations(n: int, kernel_size: int) -> Iterator[Destination]:
    """What each atom adds to each output frequency: two terms, or one where the other is its conjugate."""
    row, frequencies = rows(kernel_size), [parts[0].frequency for parts in _parts(kernel_size)]
    for output in range(n // 2 + 1):
        is_real = output in (0, n // 2)
        for atom, k in enumerate(frequencies):
            if k == 0:
                yield Destination(atom, output, row[atom], SINGLE if is_real else COMPLEX, True, Source(output, False, False), 1)
                continue
            for plus in (True,) if is_real else (True, False):
                place = source(output, k, plus, n)
                # A real plane gives X * psi only, whose conjugate is X * conj psi.
                conjugated = place.conjugate != (place.frequency in (0, n // 2) and place.conjugate_atom)
                at = row[atom] if plus else row[atom] + 1
                yield Destination(atom, output, at, REAL if is_real else COMPLEX, plus, place, -1 if conjugated else 1)


def routes(n: int, kernel_size: int) -> list[list[Route]]:
    """Where gconv.c puts each response: for all n / 2 pairs of planes, two for each atom."""
    atoms, step = len(_parts(kernel_size)), CHUNK * len(filters(kernel_size)) * TILE  # floats from panel to panel
    found = [[Route()] * (2 * atoms) for _ in range(n // 2)]
    for atom, output, row, kind, _, place, sign in destinations(n, kernel_size):
        # Planes 0 and n / 2 are the first pair; of the others, pair m holds both parts of frequency m.
        if place.frequency in (0, n // 2):
            pair, second = 0, place.frequency != 0
        else:
            pair, second = place.frequency, place.conjugate_atom
        panel = {0: 0, n // 2: 1}.get(output, 2 * output)  # of a complex frequency: its real part, the imaginary one after it
        found[pair][2 * atom + second] = Route(panel * step + row * TILE, step, kind, sign)
    return found


def write_bank(kernel_size: int, registers: int) -> str:
    """The C source of ``bank<K>``: responses of all filters for two planes, in the rows of one tile.

    The right half of a tile's row stands beside the left one, or ``down`` rows below it. Generated code only folds and multiplies. What
    becomes of the responses is in gconv.c, in ``route_flat`` and ``route``.
    """
    half, sums = kernel_size // 2, kernel_size  # sums of a row: the pixel itself, h sums and h differences
    body, kept = _write_passes(kernel_size, registers)
    lines = [
        f"INLINE void bank{kernel_size}(BANK_ARGUMENTS, const struct route *restrict routes, const int real_pair) {{",
        f"  float folded[2][MAX_ROWS + {2 * half}][{sums}][TILE] __attribute__((aligned(64)));",
        f"  float kept[2][{kept}][WIDE] __attribute__((aligned(64)));",
        f"  fold_rows(re, stride, step, rows, down, {half}, &folded[0][0][0][0]);",
        f"  fold_rows(im, stride, step, rows, down, {half}, &folded[1][0][0][0]);",
        "  for (long row = 0; row < rows; row++) {",
        f"    const float *a = folded[0][row + {half}][0], *b = folded[1][row + {half}][0], *c = coefficient;",
        "    float *to = out + row * row_step;",
        "    for (long x = 0; x < TILE; x += WIDE, a += WIDE, b += WIDE, to += WIDE) {",
        *body,
        "    }",
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _write_passes(kernel_size: int, registers: int) -> tuple[list[str], int]:
    """The sums of all filters for one vector of pixels, and how many values they keep from pass to pass."""
    parts, order = _parts(kernel_size), passes(kernel_size, registers)
    place = {coefficient: number for number, coefficient in enumerate(coefficients(kernel_size))}
    lines: list[str] = []
    kept: dict[Tap, int] = {}
    for number, members in enumerate(order):
        later = {tap for others in order[number + 1 :] for part in parts[others[0]] for tap in taps(part, kernel_size)}
        names = ["c", "s"][: len(parts[members[0]])]  # sums of cosine and sine: s0a is that of the first atom and plane a
        lines.append(f"      {{ wide {', '.join(f'{name}{i}{plane}' for name in names for i in range(len(members)) for plane in 'ab')};")
        begun: set[str] = set()
        for imaginary, at, together in _steps(members, kernel_size, registers):
            adds = []
            for i, atom in enumerate(members):
                coefficient = Coefficient(atom, imaginary, at.dy, at.dx)
                given = known(coefficient, kernel_size)
                if given == 0:
                    continue
                times = "" if given else "w * "
                terms = [(f"{name}{i}{plane}", f"{times}{name}{plane}") for name, _ in together for plane in "ab"]
                sums = " ".join(f"{to} {'+=' if to in begun else '='} {term};" for to, term in terms)
                adds.append(f"        {sums}" if given else f"        {{ wide w = SPLAT_WIDE(c[{place[coefficient]}]); {sums} }}")
                begun |= {to for to, _ in terms}
            if adds:
                values = " ".join(_values(name, tap, kernel_size // 2, kept, later) for name, tap in together)
                lines += [f"      {{ {values}", *adds, "        BARRIER }"]
        for i, atom in enumerate(members):
            k, to = parts[atom][0].frequency, f"to, routes + {2 * atom}, real_pair"
            minus = "-" if k % 2 and sine_sign(k) < 0 else ""
            lines.append(f"      route({to}, c{i}a, c{i}b, {minus}s{i}a, {minus}s{i}b);" if k else f"      route_flat({to}, c{i}a, c{i}b);")
        lines.append("      }")
    return lines, len(kept)


def _steps(members: list[int], kernel_size: int, registers: int) -> list[tuple[bool, Tap, list[tuple[str, Tap]]]]:
    """The taps of a pass, those together that share coefficients, after the place of these: imaginary or not, and a tap."""
    cosine, *sine = _parts(kernel_size)[members[0]]

    def owners(tap: Tap) -> int:
        return sum(known(Coefficient(atom, False, tap.dy, tap.dx), kernel_size) == 1 for atom in members)

    in_order = sorted(taps(cosine, kernel_size), key=owners, reverse=True)  # sums begin without a product
    cosines = [(False, tap, [("c", tap)]) for tap in in_order]
    if not sine:
        return cosines
    if cosine.frequency % 2 == 0:
        return cosines + [(True, tap, [("s", tap)]) for tap in taps(sine[0], kernel_size)]
    exchanged = {(tap.dy, tap.dx): tap for tap in taps(sine[0], kernel_size)}
    sines = [(False, tap, [("s", exchanged[tap.dx, tap.dy])]) for _, tap, _ in cosines]
    if 4 * len(members) > registers - 8:  # sums of cosine and sine, and what they multiply, for which there are too few registers
        return cosines + sines
    return [(False, tap, first + second) for (_, tap, first), (_, _, second) in zip(cosines, sines)]


def _values(name: str, tap: Tap, half: int, kept: dict[Tap, int], later: set[Tap]) -> str:
    """What a tap multiplies in both planes. Sums and differences across the diagonal are kept where a later pass needs them."""
    if tap in kept:
        return f"wide {name}a = LOAD_WIDE(kept[0][{kept[tap]}]), {name}b = LOAD_WIDE(kept[1][{kept[tap]}]);"
    if not tap.exchange:
        return f"wide {name}a = {_up_down('a', tap, half)}, {name}b = {_up_down('b', tap, half)};"
    crossed = tap._replace(dx=tap.dy, dy=tap.dx)
    text = f"wide {name}a, {name}b;"
    wanted = [sign for sign in (1, -1) if tap._replace(exchange=sign) in later]
    for sign in wanted:
        kept[tap._replace(exchange=sign)] = len(kept)
    for number, plane in enumerate("ab"):
        text += (
            f" {{ wide p = {_up_down(plane, tap, half)}, q = {_up_down(plane, crossed, half)}; {name}{plane} = p {_SIGN[tap.exchange]} q;"
        )
        text += "".join(f" STORE_WIDE(kept[{number}][{kept[tap._replace(exchange=sign)]}], p {_SIGN[sign]} q);" for sign in wanted)
        text += " }"
    return text


_SIGN = {1: "+", -1: "-"}


def _up_down(plane: str, tap: Tap, half: int) -> str:
    """The pixels of a tap, upper and lower ones added or subtracted; ``plane`` points at the folded row of the output pixel."""
    column = half + tap.dx if tap.odd_x and tap.dx else tap.dx

    def pixel(dy: int) -> str:
        return f"LOAD_WIDE({plane} + {(dy * (2 * half + 1) + column) * TILE})"

    return f"({pixel(tap.dy)} {_SIGN[-1 if tap.odd_y else 1]} {pixel(-tap.dy)})" if tap.dy else pixel(0)


def write_variants(kernel_size: int) -> str:
    """Functions of the bank for each pair of planes, with constant routes where there are some, and the list of them."""
    text = ""

    def add(name: str, routes: str, pair: int) -> None:
        nonlocal text
        text += f"static __attribute__((noinline)) void {name}(BANK_ARGUMENTS, const struct route *routes) {{\n"
        text += f"  bank{kernel_size}(re, im, stride, step, rows, down, coefficient, out, row_step, {routes}, {int(pair == 0)});\n}}\n"

    choice = ""
    for n in ROUTED:
        names = [f"bank{kernel_size}_{n}_{pair}" for pair in range(n // 2)]
        for pair, (name, found) in enumerate(zip(names, routes(n, kernel_size))):
            entries = ", ".join(f"{{{route.offset}, {route.step}, {route.kind}, {route.sign}}}" for route in found)
            text += f"static const struct route {name}_routes[] = {{{entries}}};\n"
            add(name, f"{name}_routes", pair)
        choice += f"  static bank_function *const of_{n}[] = {{{', '.join(names)}}};\n  if (n == {n}) return of_{n}[pair];\n"
    add(f"bank{kernel_size}_complex", "routes", 1)
    add(f"bank{kernel_size}_real", "routes", 0)
    choice += f"  return pair ? bank{kernel_size}_complex : bank{kernel_size}_real;\n"
    return f"{text}static bank_function *bank{kernel_size}_for(long n, long pair) {{\n{choice}}}\n"


def write_banks() -> str:
    """The file that gconv.c includes."""
    few, many = ("\n".join(write_bank(kernel_size, registers) for kernel_size in KERNEL_SIZES) for registers in REGISTERS)
    variants = "\n".join(write_variants(kernel_size) for kernel_size in KERNEL_SIZES)
    return f"/* Written by bank.py. */\n#ifdef __AVX512F__\n{many}#else\n{few}#endif\n{variants}"
