// Which layers are shown, and how strongly.

import { byId, make } from "./elements.js";

const TITLES = { slide: "Slide", tissue: "Tissue", objects: "Objects" };

export class LayerControls {
  constructor(change) {
    this.change = change; // told name and opacity
    this.rows = new Map();
  }

  clear() {
    this.rows.clear();
    byId("layers").replaceChildren();
  }

  add(name, title, shown, opacity) {
    if (this.rows.has(name)) return;
    const box = make("input", { type: "checkbox", id: `show-${name}`, checked: shown });
    const slider = make("input", { type: "range", min: 0, max: 100, value: opacity * 100, id: `opacity-${name}` });
    slider.setAttribute("aria-label", `Opacity of ${title}`);
    const tell = () => this.change(name, box.checked ? slider.value / 100 : 0);
    box.addEventListener("change", tell);
    slider.addEventListener("input", () => {
      if (!box.checked) box.checked = true;
      tell();
    });
    const key = make("kbd", {}, String(this.rows.size + 1));
    byId("layers").append(make("div", { className: "layer" }, box, make("label", { htmlFor: box.id }, title), slider, key));
    this.rows.set(name, { box, slider });
    tell();
  }

  toggle(place) {
    const row = [...this.rows.values()][place];
    row?.box.click();
  }

  // Show the first heat map, stronger or weaker.
  strengthen(by) {
    for (const [name, { slider }] of this.rows) {
      if (!name.startsWith("heat")) continue;
      slider.value = Number(slider.value) + by;
      slider.dispatchEvent(new Event("input"));
      return;
    }
  }
}

export const titleOf = (name, info) => {
  if (!name.startsWith("heat-")) return TITLES[name];
  const heat = info.heats[Number(name.slice(5))];
  return heat === "probability" ? "Probability" : `Probability ${heat.replace(/^\d+-/, "")}`;
};
