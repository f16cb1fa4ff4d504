// The chosen object: its class, its measurements, and the way to the next one.

import { get, resultPath } from "./api.js";
import { byId, counted, make, pretty, short } from "./elements.js";

export class ObjectPanel {
  constructor(view) {
    this.view = view;
    this.number = null;
    byId("go").addEventListener("submit", (event) => {
      event.preventDefault();
      this.go(byId("number").valueAsNumber);
    });
  }

  clear() {
    this.number = null;
    this.view.showOutline(null);
    byId("object").replaceChildren(make("p", { className: "hint" }, "Click an object, or press Enter for the one in the middle."));
  }

  async at({ x, y }) {
    await this.#ask(`${resultPath(this.view.key)}/at?x=${x}&y=${y}`, "There is no object at this place.");
  }

  // Show an object by its number, and bring it into view.
  async go(number) {
    const count = this.view.info.objects;
    if (!count || !Number.isInteger(number)) return;
    const found = await this.#ask(`${resultPath(this.view.key)}/objects/${number}`, "");
    if (found) this.view.show(found.box);
  }

  async step(by) {
    const count = this.view.info.objects;
    if (count) await this.go(((this.number ?? (by > 0 ? 0 : 1)) - 1 + by + count) % count + 1);
  }

  async #ask(path, none) {
    const key = this.view.key;
    try {
      const { object } = await get(path);
      if (key !== this.view.key) return null;
      if (object) this.#show(object);
      else {
        this.clear();
        byId("object").replaceChildren(make("p", { className: "hint" }, none));
      }
      return object;
    } catch (error) {
      byId("object").replaceChildren(make("p", { className: "hint" }, error.message));
      return null;
    }
  }

  #show(object) {
    this.number = object.number;
    byId("number").value = object.number;
    this.view.showOutline(object.outline);
    const patch = make("span", { className: "patch" });
    patch.style.background = object.colour;
    const heading = make("p", { className: "object-name" }, patch, `${object.class} ${counted(object.number)}`);
    const rows = Object.entries(object.measurements).map(([name, value]) =>
      make("tr", {}, make("th", { scope: "row" }, pretty(name)), make("td", {}, short(value))),
    );
    const id = make("p", { className: "id", title: "The id in the GeoJSON file" }, object.id);
    byId("object").replaceChildren(heading, make("table", { className: "measurements" }, ...rows), id);
    byId("object").scrollIntoView({ block: "nearest" });
  }
}
