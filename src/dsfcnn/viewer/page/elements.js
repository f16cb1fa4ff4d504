// Making and finding elements. Text only ever enters the page as text, never as markup.

export const byId = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const counted = (number) => number.toLocaleString("en");

export function short(value) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(1);
  return Math.abs(value) >= 100 ? value.toFixed(1) : value.toPrecision(4).replace(/\.?0+$/, "");
}

// Names of measurements are spelled in ASCII in the files.
export const pretty = (name) => name.replace("um^2", "µm²").replace(/ um$/, " µm");
