// How a measurement is spread over all objects.

import { get, resultPath } from "./api.js";
import { byId, counted, make, makeSvg, pretty, short } from "./elements.js";

const [WIDTH, HEIGHT] = [300, 96];

export class Histogram {
  constructor() {
    byId("measurement").addEventListener("change", () => this.#load());
  }

  // The measurements to choose from; areas first, as far as there are any.
  offer(key, names) {
    this.key = key;
    const options = names.map((name, column) => make("option", { value: column }, pretty(name)));
    byId("measurement").replaceChildren(...options);
    byId("measurement").disabled = names.length === 0;
    byId("histogram").replaceChildren();
    if (names.length) this.#load();
  }

  async #load() {
    const key = this.key;
    try {
      const found = await get(`${resultPath(key)}/histograms/${byId("measurement").value}`);
      if (key === this.key) byId("histogram").replaceChildren(...drawn(found));
    } catch (error) {
      byId("histogram").replaceChildren(make("p", { className: "hint" }, error.message));
    }
  }
}

function drawn({ name, counts, edges, median, mean }) {
  if (!counts.length) return [make("p", { className: "hint" }, "No values.")];
  const most = Math.max(...counts);
  const step = WIDTH / counts.length;
  const bars = counts.map((count, bin) => {
    const height = (count / most) * HEIGHT;
    const bar = makeSvg("rect", { x: bin * step, y: HEIGHT - height, width: step - 1, height });
    bar.append(makeSvg("title", {}, `${short(edges[bin])} to ${short(edges[bin + 1])}: ${counted(count)}`));
    return bar;
  });
  const words = `Histogram of ${pretty(name)}: median ${short(median)}, mean ${short(mean)}, from ${short(edges[0])} to ${short(edges.at(-1))}`;
  const chart = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words, preserveAspectRatio: "none" }, ...bars);
  const axis = make("div", { className: "axis" }, make("span", {}, short(edges[0])), make("span", {}, `${short(edges.at(-1))}+`));
  return [chart, axis, make("p", { className: "hint" }, `Median ${short(median)}, mean ${short(mean)}`)];
}
