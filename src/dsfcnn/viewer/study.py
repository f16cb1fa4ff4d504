"""A study of turning for the page: which maps there are, and strips of their frames from the sheet."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsfcnn.errors import DataError
from dsfcnn.slides import read_image
from dsfcnn.slides.source import shown
from dsfcnn.viewer.folder import Study


def describe(study: Study) -> dict[str, Any]:
    """Angles, models with their maps (row of the sheet, or probabilities of classes) and figures."""
    try:
        report, frames = study.report, study.report["frames"]
        row, models = 1, []
        for model in report["models"]:
            maps = []
            for name, feature in model["features"].items():
                has_frames = "probabilities" not in feature
                maps.append(
                    {
                        "name": str(name),
                        "row": row if has_frames else None,
                        "probabilities": feature.get("probabilities"),
                        "ratio": feature["all_steps"]["ratio"],
                        "quarterRatio": feature["quarter_turns"]["ratio"],
                    }
                )
                row += has_frames
            models.append({"name": str(model["model"]), "weights": str(model["weights"]), "passes": int(model["passes"]), "maps": maps})
        if row != len(frames["rows"]):
            raise ValueError("rows of the sheet")
        return {"name": study.name, "angles": [float(angle) for angle in report["angles"]], "side": int(frames["side"]), "models": models}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{shown(study.name)}: variance.json is not that of a study; run 'dsfcnn equivariance' again") from error


def strip(study: Study, row: int) -> NDArray[np.uint8] | None:
    """A row of the sheet: (side, side * turns, 3); None where there is none."""
    found = describe(study)
    side, turns = found["side"], len(found["angles"])
    rows = len(study.report["frames"]["rows"])
    sheet = _sheet(study)
    if sheet.shape != (rows * side, turns * side, 3):
        raise DataError(f"{shown(study.name)}: frames.png has another size than variance.json says; run 'dsfcnn equivariance' again")
    return sheet[row * side : (row + 1) * side] if 0 <= row < rows else None


@lru_cache(maxsize=2)
def _read_sheet(path: str, key: str) -> NDArray[np.uint8]:
    return read_image(path)


def _sheet(study: Study) -> NDArray[np.uint8]:
    return _read_sheet(str(study.sheet), study.key)
