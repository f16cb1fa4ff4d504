// What colours mean.

import { byId, counted, make } from "./elements.js";

export function showLegend(info) {
  const entries = info.classes.map(({ name, colour, count }) => entry(colour, name, counted(count)));
  if (info.heats.length) {
    const bar = make("span", { className: "heat-bar" });
    entries.push(make("li", {}, bar, make("span", {}, "probability 0 to 1")));
  }
  if (info.tissue) entries.push(entry("#3ca0ff", "tissue", `${info.tissueArea.toFixed(2)} mm²`));
  if (info.unreadableTiles) entries.push(entry("#ff3c3c", "could not be read", `${counted(info.unreadableTiles)} tiles`));
  byId("legend").replaceChildren(...entries);
}

function entry(colour, name, figure) {
  const patch = make("span", { className: "patch" });
  patch.style.background = colour;
  return make("li", {}, patch, make("span", {}, name), make("span", { className: "figure" }, figure));
}
