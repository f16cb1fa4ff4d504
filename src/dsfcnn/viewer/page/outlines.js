// Objects as a layer of tiles: far out the server sends pictures, near by outlines, which are drawn here, sharp at every magnification.

import { tilePath } from "./api.js";

const TILE = 512;
const LINE = 1.5; // pixels on the screen
const FILL = "33"; // opacity of the inside, hexadecimal
const STEPS = 65535; // corners are given in steps of their object's box

export function makeObjectsSource(key, info) {
  const colours = info.classes.map((one) => one.colour);
  const source = new OpenSeadragon.TileSource({
    width: info.width * 2 ** info.finer,
    height: info.height * 2 ** info.finer,
    tileSize: TILE,
    minLevel: info.firstLevel,
    maxLevel: info.fullLevel + info.finer,
  });
  source.getTileUrl = (level, x, y) => tilePath(key, "objects", level, x, y);
  // Not so, but else every frame would go through a second canvas; now coarser tiles shine through while finer ones load.
  source.hasTransparency = () => false;
  source.downloadTileStart = (job) => {
    job.userData.abort = new AbortController();
    load(job, 2 ** (job.tile.level - info.fullLevel), colours).catch((error) => job.fail(error.message, null));
  };
  source.downloadTileAbort = (job) => job.userData.abort.abort();
  return source;
}

async function load(job, scale, colours) {
  const reply = await fetch(job.src, { signal: job.userData.abort.signal });
  if (!reply.ok) throw new Error(`no tile (${reply.status})`);
  if (reply.headers.get("content-type").startsWith("image/")) {
    job.finish(await createImageBitmap(await reply.blob()), null, "imageBitmap");
    return;
  }
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = TILE;
  const context = canvas.getContext("2d");
  draw(context, unpack(await reply.arrayBuffer()), scale, colours);
  job.finish(context, null, "context2d");
}

// The order of the parts is that of Objects.packed on the server.
export function unpack(buffer) {
  const [objects, rings, corners] = new Uint32Array(buffer, 0, 3);
  let place = 12;
  const part = (Kind, count) => {
    const view = new Kind(buffer, place, count);
    place += view.byteLength;
    return view;
  };
  return {
    numbers: part(Uint32Array, objects),
    boxes: part(Float32Array, 4 * objects),
    firstRings: part(Uint32Array, objects + 1),
    firstCorners: part(Uint32Array, rings + 1),
    places: part(Uint16Array, 2 * corners),
    kinds: part(Uint8Array, objects),
  };
}

function draw(context, objects, scale, colours) {
  context.lineWidth = LINE;
  context.lineJoin = "round";
  for (const kind of new Set(objects.kinds)) {
    context.beginPath();
    for (let number = 0; number < objects.kinds.length; number++) {
      if (objects.kinds[number] === kind) trace(context, objects, number, scale);
    }
    context.fillStyle = colours[kind] + FILL;
    context.fill("evenodd");
    context.strokeStyle = colours[kind];
    context.stroke();
  }
}

function trace(context, { boxes, firstRings, firstCorners, places }, number, scale) {
  const left = boxes[4 * number] * scale;
  const top = boxes[4 * number + 1] * scale;
  const across = (boxes[4 * number + 2] * scale) / STEPS;
  const down = (boxes[4 * number + 3] * scale) / STEPS;
  for (let ring = firstRings[number]; ring < firstRings[number + 1]; ring++) {
    const end = 2 * firstCorners[ring + 1];
    let corner = 2 * firstCorners[ring];
    context.moveTo(left + places[corner] * across, top + places[corner + 1] * down);
    for (corner += 2; corner < end; corner += 2) {
      context.lineTo(left + places[corner] * across, top + places[corner + 1] * down);
    }
    context.closePath();
  }
}
