// The page: which result is shown, and who is told about it.

import { get, resultPath, sentence } from "./api.js";
import { byId, counted, make } from "./elements.js";
import { Histogram } from "./histogram.js";
import { bindKeys } from "./keys.js";
import { LayerControls, titleOf } from "./layers.js";
import { showLegend } from "./legend.js";
import { ObjectPanel } from "./object.js";
import { showScale } from "./scalebar.js";
import { SlideView } from "./slide.js";
import { StudyView } from "./study.js";

const POLL = 400; // milliseconds between two questions how far the server is
const view = new SlideView(byId("viewer"));
const layers = new LayerControls((name, opacity) => view.setOpacity(name, opacity));
const panel = new ObjectPanel(view);
const histogram = new Histogram();
const study = new StudyView(byId("study-view"));
let entries = []; // of the list: { name, kind, key, button }
let current = null;

window.dsfcnnView = view; // for tests and for the curious

async function start() {
  const contents = await get("/api/results");
  byId("folder").textContent = contents.folder;
  document.title = `${contents.folder} – dsfcnn`;
  entries = [
    ...contents.results.map((one) => ({ ...one, kind: "result", words: `${one.task}, ${counted(one.objects)} objects` })),
    ...contents.studies.map((one) => ({ ...one, kind: "study", words: "study of turning" })),
  ];
  for (const entry of entries) {
    const words = make("small", {}, entry.words);
    entry.button = make("button", { type: "button" }, make("span", {}, entry.name), words);
    entry.button.addEventListener("click", () => choose(entry));
  }
  const failures = contents.failures.map(({ name, reason }) =>
    make("li", { className: "failed" }, make("span", {}, name), make("small", {}, sentence(reason))),
  );
  byId("results").replaceChildren(...entries.map((entry) => make("li", {}, entry.button)), ...failures);
  openNamed();
}

// The address holds the name after "#", so that it can be kept and opened again.
function openNamed() {
  const name = decodeName(location.hash.slice(1));
  const entry = name ? entries.find((one) => one.name === name) : entries[0];
  if (entry) show(entry);
  else if (name) refuse(`There is no result called “${name}” in this folder; choose one of the list.`);
  else byId("welcome").hidden = false;
}

function decodeName(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function choose(entry) {
  const name = `#${encodeURIComponent(entry.name)}`;
  if (location.hash === name) show(entry);
  else location.hash = name;
}

function refuse(message) {
  current = null;
  for (const id of ["slide-view", "study-view", "details", "welcome"]) byId(id).hidden = true;
  for (const entry of entries) entry.button.removeAttribute("aria-current");
  notice(message);
  byId("status").textContent = "";
}

function notice(message) {
  byId("notice").hidden = !message;
  byId("notice").textContent = message;
}

async function show(entry) {
  current = entry;
  notice("");
  byId("welcome").hidden = true;
  for (const one of entries) {
    if (one === entry) one.button.setAttribute("aria-current", "true");
    else one.button.removeAttribute("aria-current");
  }
  byId("slide-view").hidden = entry.kind !== "result";
  byId("study-view").hidden = entry.kind !== "study";
  byId("details").hidden = entry.kind !== "result";
  byId("status").textContent = "";
  try {
    if (entry.kind === "study") await study.show(entry.key);
    else await showResult(entry);
  } catch (error) {
    if (current === entry) refuse(error.message);
  }
}

async function showResult(entry) {
  let info = await get(resultPath(entry.key));
  if (current !== entry) return;
  view.clear(entry.key, info);
  panel.clear();
  layers.clear();
  histogram.offer(entry.key, []);
  for (;;) {
    view.info = info;
    tell(info);
    addLayers(info);
    showLegend(info);
    if (!info.busy) break;
    await new Promise((resolve) => setTimeout(resolve, POLL));
    if (current !== entry) return;
    info = await get(resultPath(entry.key));
    if (current !== entry) return;
  }
  byId("number").max = info.objects ?? 1;
  histogram.offer(entry.key, info.measurements);
}

function addLayers(info) {
  const classes = info.task === "tumour"; // there the heat map is the result, and objects are its squares
  if (info.slide) addLayer("slide", info, true, 1);
  if (info.busy === "looking for the slide") return; // so that keys 1, 2, ... mean the same every time
  if (info.tissue) addLayer("tissue", info, false, 0.5);
  info.heats.forEach((_, number) => addLayer(`heat-${number}`, info, classes && number === 0, 0.6));
  if (info.objects !== null) addLayer("objects", info, !classes, 1);
}

function addLayer(name, info, shown, opacity) {
  layers.add(name, titleOf(name, info), shown, opacity);
  view.add(name, info);
}

function tell(info) {
  const parts = Object.values(info.messages).map(sentence);
  if (info.messages.slide && info.slide) parts.push("A smaller picture with the contours stands in for it.");
  notice(parts.join(" "));
  const progress = info.read ? `${counted(info.read)} of ${counted(info.expected)}` : "";
  const size = `${counted(info.width)} × ${counted(info.height)} px, ${Number(info.mpp.toPrecision(4))} µm/px`;
  byId("status").textContent = info.busy ? `${sentence(info.busy).slice(0, -1)} … ${progress}` : size;
}

view.viewer.addHandler("update-viewport", () => view.info && showScale(view));
view.viewer.addHandler("canvas-click", (event) => {
  if (event.quick) panel.at(view.toSlide(event.position));
});
byId("zoom-in").addEventListener("click", () => view.zoom(1.5));
byId("zoom-out").addEventListener("click", () => view.zoom(1 / 1.5));
byId("fit").addEventListener("click", () => view.fit());
window.addEventListener("hashchange", openNamed);

const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const onSlide = (act) => (...values) => current?.kind === "result" && act(...values);
bindKeys({
  move: (key) => (current?.kind === "study" ? study.turn(key === "ArrowRight" || key === "ArrowUp" ? 1 : -1) : onSlide(() => view.pan(...MOVES[key]))()),
  zoom: onSlide((factor) => view.zoom(factor)),
  fit: onSlide(() => view.fit()),
  layer: onSlide((place) => layers.toggle(place)),
  heat: onSlide((by) => layers.strengthen(by)),
  pick: onSlide(() => panel.at(view.middle())),
  step: onSlide((by) => panel.step(by)),
  release: onSlide(() => panel.clear()),
  result: (by) => {
    const place = entries.indexOf(current);
    if (entries.length) choose(entries[(Math.max(place, by > 0 ? -1 : 0) + by + entries.length) % entries.length]);
  },
});

start().catch((error) => refuse(error.message));
