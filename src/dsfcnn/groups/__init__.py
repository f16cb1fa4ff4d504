"""The symmetry groups: rotations C_n, rotations with mirrors D_n, and how they act on filters and maps."""

from dsfcnn.groups.action import act
from dsfcnn.groups.cyclic import Cyclic
from dsfcnn.groups.dihedral import Dihedral
from dsfcnn.groups.group import Group
from dsfcnn.groups.parse import parse_group

__all__ = ["Cyclic", "Dihedral", "Group", "act", "parse_group"]
