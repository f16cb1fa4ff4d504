// The slide: OpenSeadragon, with one layer on another, and the outline of the chosen object above them.

import { tilePath } from "./api.js";
import { make } from "./elements.js";
import { makeObjectsSource } from "./outlines.js";

const TILE = 512;
const LARGEST = 16; // screen pixels per pixel of the slide
const RANKS = ["slide", "tissue", "heat", "objects"]; // from below
const CALM = window.matchMedia("(prefers-reduced-motion: reduce)").matches;

export class SlideView {
  constructor(element) {
    // OpenSeadragon would add a style element, which this page's policy forbids, unless there is one; an empty one is allowed.
    document.head.append(make("style", { "data-openseadragon-mobile-css": "" }));
    this.viewer = OpenSeadragon({
      element,
      drawer: "canvas",
      showNavigationControl: false,
      showNavigator: true,
      navigatorPosition: "BOTTOM_LEFT",
      navigatorSizeRatio: 0.16,
      navigatorAutoFade: false,
      navigatorOpacity: 1,
      navigatorBorderColor: "#323841",
      navigatorDisplayRegionColor: "#5cc8b8",
      navigatorBackground: "#0b0d10",
      navigatorMaintainSizeRatio: true,
      animationTime: CALM ? 0 : 0.35,
      blendTime: 0,
      minZoomImageRatio: 0.6,
      visibilityRatio: 0.3,
      imageLoaderLimit: 6,
      maxImageCacheCount: 300,
      gestureSettingsMouse: { clickToZoom: false, dblClickToZoom: true },
      gestureSettingsTouch: { clickToZoom: false },
      gestureSettingsPen: { clickToZoom: false },
    });
    this.viewer.canvas.setAttribute("role", "application");
    this.viewer.canvas.setAttribute("aria-label", "Slide: arrows move, plus and minus zoom, Enter asks for the object in the middle");
    this.layers = new Map(); // name -> its tiled image, or null while it is being added
    this.wanted = new Map(); // name -> opacity
    this.outline = null;
    this.marks = document.createElement("canvas");
    this.marks.className = "marks";
    this.marks.hidden = true;
    this.marks.setAttribute("aria-hidden", "true");
    this.viewer.canvas.append(this.marks);
    this.viewer.addHandler("update-viewport", () => this.drawMarks());
    this.viewer.addHandler("canvas-key", (event) => {
      event.preventDefaultAction = true; // keys.js has them all
    });
  }

  clear(key, info) {
    this.viewer.world.removeAll();
    this.layers.clear();
    this.wanted.clear();
    this.outline = null;
    this.key = key;
    this.info = info;
    this.fitted = false;
  }

  // Add a layer, once; its opacity may be set before it is there.
  add(name, info) {
    if (this.layers.has(name)) return;
    this.layers.set(name, null);
    const key = this.key;
    const rank = rankOf(name);
    this.viewer.addTiledImage({
      tileSource: name === "objects" ? makeObjectsSource(key, info) : this.#pictures(name, info),
      index: [...this.layers.keys()].filter((other) => this.layers.get(other) && rankOf(other) < rank).length,
      opacity: this.wanted.get(name) ?? 1,
      success: ({ item }) => {
        if (this.key !== key) return;
        this.layers.set(name, item);
        item.setOpacity(this.wanted.get(name) ?? 1);
        this.#sort();
        if (!this.fitted) this.#fitFirst();
      },
    });
  }

  // The size of the viewer is only known now that it is shown.
  #fitFirst() {
    this.fitted = true;
    const { clientWidth, clientHeight } = this.viewer.container;
    this.viewer.viewport.resize(new OpenSeadragon.Point(clientWidth, clientHeight), true);
    this.viewer.viewport.maxZoomLevel = (LARGEST * this.info.width) / clientWidth;
    this.viewer.viewport.goHome(true);
  }

  // Layers may arrive in any order.
  #sort() {
    const present = [...this.layers].filter(([, item]) => item).sort(([a], [b]) => rankOf(a) - rankOf(b));
    present.forEach(([, item], place) => this.viewer.world.setItemIndex(item, place));
  }

  #pictures(layer, info) {
    const key = this.key;
    const source = new OpenSeadragon.TileSource({
      width: info.width,
      height: info.height,
      tileSize: TILE,
      minLevel: info.firstLevel,
      maxLevel: info.fullLevel,
    });
    source.getTileUrl = (level, x, y) => tilePath(key, layer, level, x, y);
    source.hasTransparency = () => layer !== "slide";
    return source;
  }

  setOpacity(name, opacity) {
    this.wanted.set(name, opacity);
    this.layers.get(name)?.setOpacity(opacity);
  }

  // Screen pixels per pixel of the slide, and where the slide's corner is on the screen.
  place() {
    const viewport = this.viewer.viewport;
    const corner = viewport.pixelFromPoint(new OpenSeadragon.Point(0, 0), true);
    const end = viewport.pixelFromPoint(new OpenSeadragon.Point(1, 0), true);
    return { scale: (end.x - corner.x) / this.info.width, left: corner.x, top: corner.y };
  }

  toSlide(position) {
    const { scale, left, top } = this.place();
    return { x: (position.x - left) / scale, y: (position.y - top) / scale };
  }

  middle() {
    const size = this.viewer.viewport.getContainerSize();
    return this.toSlide({ x: size.x / 2, y: size.y / 2 });
  }

  showOutline(outline) {
    this.outline = outline;
    this.drawMarks();
  }

  // Bring a box (left, top, width, height) into view, with some of its surroundings.
  show([left, top, width, height]) {
    const around = Math.max(width, height) * 4;
    const unit = 1 / this.info.width;
    const [x, y] = [left + width / 2 - around / 2, top + height / 2 - around / 2];
    this.viewer.viewport.fitBounds(new OpenSeadragon.Rect(x * unit, y * unit, around * unit, around * unit), CALM);
  }

  pan(across, down) {
    const size = this.viewer.viewport.getContainerSize();
    const by = new OpenSeadragon.Point((across * size.x) / 8, (down * size.y) / 8);
    this.viewer.viewport.panBy(this.viewer.viewport.deltaPointsFromPixels(by));
    this.viewer.viewport.applyConstraints();
  }

  zoom(factor) {
    this.viewer.viewport.zoomBy(factor);
    this.viewer.viewport.applyConstraints();
  }

  fit() {
    this.viewer.viewport.goHome();
  }

  drawMarks() {
    this.marks.hidden = !this.outline; // even an empty canvas must be laid over the slide in every frame
    if (!this.outline) return;
    const size = this.viewer.viewport.getContainerSize();
    const ratio = window.devicePixelRatio || 1;
    this.marks.width = Math.round(size.x * ratio); // which also clears it
    this.marks.height = Math.round(size.y * ratio);
    const context = this.marks.getContext("2d");
    const { scale, left, top } = this.place();
    context.setTransform(ratio, 0, 0, ratio, left * ratio, top * ratio);
    context.beginPath();
    for (const ring of this.outline) {
      ring.forEach(([x, y], corner) => (corner ? context.lineTo(x * scale, y * scale) : context.moveTo(x * scale, y * scale)));
      context.closePath();
    }
    context.lineJoin = "round";
    for (const [width, colour] of [[5, "#000b"], [2.5, "#ffe14d"]]) {
      context.lineWidth = width;
      context.strokeStyle = colour;
      context.stroke();
    }
  }
}

const rankOf = (name) => RANKS.indexOf(name.split("-")[0]);
