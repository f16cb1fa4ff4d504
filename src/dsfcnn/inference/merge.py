"""One object from the pieces that tiles see of it.

Every pixel belongs to one tile, and is labelled as that tile sees it. Two tiles that share a border both see the pixels along it; where an
object of one covers about the same of these as an object of the other, they are the same object, and their pieces are joined. So an object
is written once, whatever its size, no pixel belongs to two, and nothing depends on the order in which tiles were computed.

An object that the tile beyond the border does not see has no second piece. If most of it would lie over there it is dropped: in those
pixels the other tile's objects count.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from dsfcnn.inference.stitch import TileObjects
from dsfcnn.inference.tiles import SEAM, Box, Grid, Tile

_SAME = 0.5  # overlap over union, along the border, above which two objects are one; two different ones cannot both pass it

_Name = tuple[int, int, int]  # row, column, id


@dataclass(frozen=True)
class Found:
    """An object: its decode pixels as a mask within a box, and the mean probability there."""

    box: Box
    mask: np.ndarray
    probability: float


@dataclass
class _Piece:
    box: Box
    mask: np.ndarray
    total: int  # sum of the bytes of probability
    most_beyond: bool  # more than half of the object lies outside the tile


class Merger:
    """Takes tiles row by row, gives objects as soon as they are complete."""

    def __init__(self, grid: Grid):
        self.grid = grid
        self._edges: dict[Tile, dict[str, tuple[Box, np.ndarray]]] = {}  # labels along the right and lower border of earlier tiles
        self._pieces: dict[_Name, _Piece] = {}  # of objects that are not complete
        self._parent: dict[_Name, _Name] = {}
        self._row = 0

    def add(self, tile: Tile, objects: TileObjects) -> Iterator[Found]:
        """Objects that became complete: all of the tile's own that touch no other tile, and at the start of a row those of rows before."""
        if tile.row > self._row:
            yield from self._close(tile.row)
        core = self.grid.core(tile).times(self.grid.factor)
        labels = objects.labels[core.slices(objects.box)]
        probability = objects.probability[core.slices(objects.box)]
        at_border = self._at_border(core, labels)
        for number, place in enumerate(ndimage.find_objects(labels), 1):
            if place is None:
                continue
            mask = labels[place] == number
            rows, columns = place
            box = Box(core.left + columns.start, core.top + rows.start, core.left + columns.stop, core.top + rows.stop)
            total = int(probability[place][mask].sum(dtype=np.int64))
            if number in at_border:
                name = (*tile, number)
                self._pieces[name] = _Piece(box, mask, total, 2 * int(mask.sum()) < objects.area[number])
                self._parent[name] = name
            else:
                yield Found(box, mask, total / 255 / int(mask.sum()))
        for other in self.grid.around(tile):
            if other < tile and other in self._edges:
                self._join(tile, objects, other)
        self._edges[tile] = _edges(objects)

    def finish(self) -> Iterator[Found]:
        """What was still open."""
        yield from self._close(self.grid.rows + 1)

    def _at_border(self, core: Box, labels: np.ndarray) -> set[int]:
        """Ids of objects within reach of another tile's pixels."""
        whole = self.grid.whole.times(self.grid.factor)
        edges = []
        if core.left > whole.left:
            edges.append(labels[:, :SEAM])
        if core.top > whole.top:
            edges.append(labels[:SEAM])
        if core.right < whole.right:
            edges.append(labels[:, -SEAM:])
        if core.bottom < whole.bottom:
            edges.append(labels[-SEAM:])
        return {int(number) for edge in edges for number in np.unique(edge)} - {0}

    def _join(self, tile: Tile, objects: TileObjects, other: Tile) -> None:
        """Find the objects that a tile shares with an earlier neighbour, on the belt along their border that both have kept."""
        box, labels = self._edges[other]["right" if other.row == tile.row else "bottom"]
        belt = objects.box.within(box)
        if not belt.area:
            return
        mine, yours = objects.labels[belt.slices(objects.box)], labels[belt.slices(box)]
        both = (mine > 0) & (yours > 0)
        if not both.any():
            return
        of_mine, of_yours = np.bincount(mine.ravel()), np.bincount(yours.ravel())
        pairs, counts = np.unique(mine[both].astype(np.int64) * len(of_yours) + yours[both], return_counts=True)
        for pair, count in zip(pairs, counts):
            a, b = divmod(int(pair), len(of_yours))
            first, second = (*tile, a), (*other, b)
            if count > _SAME * (of_mine[a] + of_yours[b] - count) and first in self._parent and second in self._parent:
                self._parent[self._root(first)] = self._root(second)

    def _root(self, name: _Name) -> _Name:
        while self._parent[name] != name:
            self._parent[name] = name = self._parent[self._parent[name]]
        return name

    def _close(self, row: int) -> Iterator[Found]:
        """Objects that no tile from this row on can add to: none of their pieces is near the last row's lower border."""
        self._row = row
        groups: dict[_Name, list[_Name]] = defaultdict(list)
        for name in self._pieces:
            groups[self._root(name)].append(name)
        border = self.grid.tile * row * self.grid.factor
        for names in sorted(map(sorted, groups.values())):
            pieces = [self._pieces[name] for name in names]
            if row <= self.grid.rows and any(piece.box.bottom > border - SEAM for piece in pieces):
                continue
            for name in names:
                del self._pieces[name], self._parent[name]
            if len(pieces) > 1 or not pieces[0].most_beyond:
                yield _joined(pieces)
        self._edges = {tile: edges for tile, edges in self._edges.items() if tile.row >= row - 1}


def _edges(objects: TileObjects) -> dict[str, tuple[Box, np.ndarray]]:
    box = objects.box
    right, bottom = box._replace(left=max(box.left, box.right - 2 * SEAM)), box._replace(top=max(box.top, box.bottom - 2 * SEAM))
    return {name: (edge, objects.labels[edge.slices(box)].copy()) for name, edge in {"right": right, "bottom": bottom}.items()}


def _joined(pieces: list[_Piece]) -> Found:
    box = Box(
        min(piece.box.left for piece in pieces),
        min(piece.box.top for piece in pieces),
        max(piece.box.right for piece in pieces),
        max(piece.box.bottom for piece in pieces),
    )
    mask = np.zeros((box.height, box.width), bool)
    for piece in pieces:
        mask[piece.box.slices(box)] |= piece.mask
    return Found(box, mask, sum(piece.total for piece in pieces) / 255 / int(mask.sum()))
