"""C_n: the turns by multiples of 360/n degrees, paper Eqs. (5) and (6). C1 is the trivial group {e}."""

from dataclasses import dataclass

from dsfcnn.groups.group import Group


@dataclass(frozen=True)
class Cyclic(Group):
    """C_n. Element s is the turn by 2 pi s / n."""

    @property
    def name(self) -> str:
        return f"C{self.orientations}"

    @property
    def size(self) -> int:
        return self.orientations

    def compose(self, first: int, second: int) -> int:
        return (first + second) % self.orientations

    def mirrors(self, element: int) -> bool:
        return False
