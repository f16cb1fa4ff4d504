// A bar of a round number of microns.

import { byId } from "./elements.js";

const LONGEST = 160; // pixels

let shown = null; // by panning nothing changes

export function showScale(view) {
  const { scale } = view.place();
  if (shown === `${scale} ${view.key}`) return;
  shown = `${scale} ${view.key}`;
  const pixels = scale / view.info.mpp; // on the screen per micron
  const length = roundBelow(LONGEST / pixels);
  byId("scale-line").style.width = `${length * pixels}px`;
  const assumed = view.info.mppSource.startsWith("assumed") ? " (assumed)" : "";
  byId("scale-text").textContent = (length >= 1000 ? `${length / 1000} mm` : `${length} µm`) + assumed;
}

// The largest of 1, 2, 5, 10, 20, ... that is not above.
export function roundBelow(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  const first = [5, 2, 1].find((step) => step * power <= value * (1 + 1e-9)) ?? 1;
  return Number((first * power).toPrecision(1));
}
