"""A model may bring decoding settings of its own."""

import pytest

from dsfcnn import tasks
from dsfcnn.errors import UsageError
from dsfcnn.tasks.task import with_settings


def test_the_task_itself_stays_as_it_is():
    changed = with_settings(tasks.get("nuclei"), {"marker_threshold": 0.5})
    assert changed.settings.marker_threshold == 0.5
    assert changed.settings.object_threshold == tasks.get("nuclei").settings.object_threshold
    assert tasks.get("nuclei").settings.marker_threshold == 0.75
    assert with_settings(tasks.get("nuclei"), {}) is tasks.get("nuclei")


@pytest.mark.parametrize(("task", "setting"), [("nuclei", "marker_treshold"), ("tumour", "marker_threshold")])
def test_an_unknown_setting_is_refused(task, setting):
    with pytest.raises(UsageError, match=setting):
        with_settings(tasks.get(task), {setting: 0.5})
