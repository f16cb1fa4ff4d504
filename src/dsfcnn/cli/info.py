"""``dsfcnn info``: what a slide is, how large its pixels are and who says so, and how much tissue is on it."""

import json as json_format
from pathlib import Path
from typing import Annotated, Any

import typer


def info(
    slide: Annotated[Path, typer.Argument(readable=False, help="A slide or image.")],
    slide_mpp: Annotated[float | None, typer.Option("--slide-mpp", help="Microns per pixel, when the slide does not say.")] = None,
    tissue: Annotated[bool, typer.Option(help="Look for tissue, which reads the slide.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Say a slide's size, levels, resolution, vendor and tissue area."""
    found = _inspect(slide, slide_mpp, tissue)
    if json:
        print(json_format.dumps(found, indent=2))
        return
    levels = [f"{level['width']} x {level['height']} (1:{level['downsample']:g})" for level in found["levels"]]
    known = found["mpp"] is not None
    lines = {
        "size": f"{found['width']} x {found['height']} pixels",
        "levels": ", ".join(levels),
        "resolution": f"{found['mpp']:.4g} um per pixel, from {found['mpp_source']}" if known else "unknown; give --slide-mpp",
        "vendor": found["vendor"],
        "objective": f"{found['power']:g}x" if found["power"] else "unknown",
        "reader": found["reader"],
        "bounds": f"{found['bounds'][0]}, {found['bounds'][1]}",
    }
    if found["tissue"] is not None:
        part = found["tissue"]
        lines["tissue"] = f"{part['area_mm2']:.3g} mm2, {part['fraction']:.1%} of the slide"
        if part["unreadable"]:
            lines["unreadable"] = f"{part['unreadable']:.2%} of the slide is damaged or missing"
    for name, line in lines.items():
        print(f"{name:<12}{line}")


def _inspect(path: Path, slide_mpp: float | None, with_tissue: bool) -> dict[str, Any]:
    from dsfcnn.slides import UnknownResolution, find_tissue, open_slide

    try:
        slide = open_slide(path, mpp=slide_mpp)
        known = True
    except UnknownResolution:
        slide = open_slide(path, mpp=1.0)  # only a place holder: whatever depends on it is left out below
        known = False
    with slide:
        found: dict[str, Any] = {
            "width": slide.width,
            "height": slide.height,
            "levels": [{"width": level.width, "height": level.height, "downsample": level.downsample} for level in slide.levels],
            "mpp": slide.mpp if known else None,
            "mpp_source": slide.mpp_source if known else None,
            "vendor": slide.vendor,
            "power": slide.power,
            "reader": slide.reader,
            "bounds": list(slide.bounds),
            "tissue": None,
        }
        if known and with_tissue:
            tissue = find_tissue(slide)
            found["tissue"] = {
                "area_mm2": tissue.area,
                "fraction": float(tissue.mask.mean()),
                "unreadable": float(tissue.unreadable.mean()),
            }
    return found
