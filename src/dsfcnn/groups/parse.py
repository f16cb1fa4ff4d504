"""Groups by name."""

import re

from dsfcnn.errors import GroupError
from dsfcnn.groups.cyclic import Cyclic
from dsfcnn.groups.dihedral import Dihedral
from dsfcnn.groups.group import Group

_FAMILIES = {"C": Cyclic, "D": Dihedral}


def parse_group(group: str | Group) -> Group:
    """The group of that name; a group is returned as it is.

    >>> parse_group("C8").size, parse_group("D4").size
    (8, 8)
    >>> parse_group("E8")
    Traceback (most recent call last):
    ...
    dsfcnn.errors.GroupError: no group 'E8'; use C1, C2, C3, ... (rotations) or D1, D2, ... (rotations and mirrors)
    """
    if isinstance(group, Group):
        return group
    match = re.fullmatch(r"([CD])([1-9][0-9]{0,8})", group) if isinstance(group, str) else None
    if match is None:
        raise GroupError(f"no group {group!r}; use C1, C2, C3, ... (rotations) or D1, D2, ... (rotations and mirrors)")
    return _FAMILIES[match[1]](int(match[2]))
