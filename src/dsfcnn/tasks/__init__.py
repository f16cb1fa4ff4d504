"""The tasks: from instance maps to training targets, from network output to instances, and every measure of the paper.

numpy, scipy and scikit-image; torch only when a loss is computed.
"""

from dsfcnn.errors import UsageError
from dsfcnn.tasks import metrics
from dsfcnn.tasks.decode import GlandSettings, NucleiSettings
from dsfcnn.tasks.digits import DIGITS
from dsfcnn.tasks.glands import GLANDS
from dsfcnn.tasks.instances import split_pieces
from dsfcnn.tasks.nuclei import NUCLEI
from dsfcnn.tasks.task import Task
from dsfcnn.tasks.tumour import TUMOUR

_TASKS: dict[str, Task] = {task.name: task for task in (TUMOUR, GLANDS, NUCLEI, DIGITS)}

__all__ = ["GlandSettings", "NucleiSettings", "Task", "get", "metrics", "names", "split_pieces"]


def names() -> list[str]:
    """The tasks' names."""
    return list(_TASKS)


def get(name: str) -> Task:
    """The task of this name.

    >>> get("nuclei").heads
    {'object': ('background', 'nucleus'), 'marker': ('marker', 'contour', 'background')}
    """
    if name not in _TASKS:
        raise UsageError(f"no task {name!r}; use one of {', '.join(_TASKS)}")
    return _TASKS[name]
