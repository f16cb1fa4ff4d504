"""D_n: the turns of C_n with a mirror, the paper's future work; D4 is the p4m of other papers."""

from dataclasses import dataclass

from dsfcnn.groups.group import Group


@dataclass(frozen=True)
class Dihedral(Group):
    """D_n. Element s is the turn by 2 pi s / n, element n + s the mirror in the horizontal axis followed by that turn."""

    @property
    def name(self) -> str:
        return f"D{self.orientations}"

    @property
    def size(self) -> int:
        return 2 * self.orientations

    def compose(self, first: int, second: int) -> int:
        n = self.orientations
        # A turn passes through a mirror reversed: mirror . turn(s) = turn(-s) . mirror.
        turn = first - second if self.mirrors(first) else first + second
        return turn % n + n * (self.mirrors(first) != self.mirrors(second))

    def mirrors(self, element: int) -> bool:
        return element >= self.orientations
