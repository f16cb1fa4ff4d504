// The input is turned with a slider; below it what each model makes of it, side by side.

import { get } from "./api.js";
import { make, short } from "./elements.js";

const SHOWN = 208; // pixels a side of a map on the page
const PLAY = 120; // milliseconds a step

export class StudyView {
  constructor(element) {
    this.element = element;
    this.slider = make("input", { type: "range", id: "angle", min: 0, value: 0, step: 1 });
    this.angle = make("output", { htmlFor: "angle" });
    this.back = make("input", { type: "checkbox", id: "back" });
    this.play = make("button", { type: "button" }, "Play");
    this.slider.addEventListener("input", () => this.draw());
    this.back.addEventListener("change", () => this.draw());
    this.play.addEventListener("click", () => this.toggle());
  }

  async show(key) {
    this.stop();
    this.key = key;
    const study = await get(`/api/studies/${key}`);
    if (this.key !== key) return; // another one was chosen meanwhile
    this.study = study;
    this.pictures = []; // { canvas, row, strip, probabilities, bars }
    this.slider.max = study.angles.length - 1;
    this.slider.value = 0;
    const controls = make(
      "div",
      { className: "turning" },
      make("label", { htmlFor: "angle" }, "Turn the input"),
      this.slider,
      this.angle,
      this.play,
      make("span", { className: "back" }, this.back, make("label", { htmlFor: "back" }, "turn the maps back")),
    );
    const models = study.models.map((model) => this.#column(model));
    const input = make("section", { className: "model" }, make("h3", {}, "Input"), this.#map("turned input", 0));
    this.element.replaceChildren(
      make("h2", {}, `${study.name}: what turning changes`),
      make("p", { className: "hint" }, "Turned back, the maps of a network that turns with its input stand still; those of another flicker."),
      controls,
      make("div", { className: "models" }, input, ...models),
    );
    const drawn = this.pictures.filter((one) => one.row !== null);
    await Promise.all(drawn.map(async (one) => (one.strip = await load(`/api/studies/${key}/strips/${one.row}`))));
    if (this.key === key) this.draw();
  }

  #column({ name, weights, passes, maps }) {
    const words = [weights === "random" ? "random weights" : "", passes > 1 ? `${passes} passes` : ""].filter(Boolean).join(", ");
    const figures = maps.map((map) => {
      const figure = map.row === null ? this.#bars(map) : this.#map(titleOf(map.name), map.row);
      const ratios = `variance over turns ${short(map.ratio)}, over quarter turns ${short(map.quarterRatio)}`;
      if (map.row !== null) figure.append(make("small", {}, ratios));
      return figure;
    });
    return make("section", { className: "model" }, make("h3", {}, name), make("p", { className: "hint" }, words), ...figures);
  }

  #map(title, row) {
    const canvas = make("canvas", { width: SHOWN, height: SHOWN, role: "img" });
    canvas.setAttribute("aria-label", title);
    this.pictures.push({ canvas, row, strip: null });
    return make("figure", {}, canvas, make("figcaption", {}, title));
  }

  #bars({ name, probabilities }) {
    const bars = probabilities[0].map(() => make("meter", { min: 0, max: 1 }));
    this.pictures.push({ row: null, bars, probabilities });
    return make("figure", {}, ...bars, make("figcaption", {}, titleOf(name)));
  }

  draw() {
    const step = Number(this.slider.value);
    const degrees = this.study.angles[step];
    this.angle.textContent = `${Number(degrees.toFixed(1))}°`;
    for (const { canvas, row, strip, bars, probabilities } of this.pictures) {
      if (bars) bars.forEach((bar, place) => (bar.value = probabilities[step][place]));
      else if (strip) this.#draw(canvas, strip, step, this.back.checked && row > 0 ? degrees : 0);
    }
  }

  // A frame inside the disc that every turn fills, turned back by as much as the input was turned.
  #draw(canvas, strip, step, degrees) {
    const context = canvas.getContext("2d");
    const side = this.study.side;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, SHOWN, SHOWN);
    context.translate(SHOWN / 2, SHOWN / 2);
    context.save();
    context.beginPath();
    context.arc(0, 0, SHOWN / 2, 0, 2 * Math.PI);
    context.clip();
    context.rotate((degrees * Math.PI) / 180); // counter-clockwise on the screen is negative here, and back is its opposite
    context.drawImage(strip, step * side, 0, side, side, -SHOWN / 2, -SHOWN / 2, SHOWN, SHOWN);
    context.restore();
  }

  turn(by) {
    const turns = this.study.angles.length;
    this.slider.value = (Number(this.slider.value) + by + turns) % turns;
    this.draw();
  }

  toggle() {
    if (this.timer) return this.stop();
    this.play.textContent = "Stop";
    this.timer = setInterval(() => (this.element.hidden ? this.stop() : this.turn(1)), PLAY);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "Play";
  }
}

function load(path) {
  return new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error("The frames of this study cannot be read; run 'dsfcnn equivariance' again."));
    image.src = path;
  });
}

const titleOf = (name) => (["A", "B"].includes(name) ? `feature ${name}` : name === "classes" ? "class probabilities" : `${name} probability`);
