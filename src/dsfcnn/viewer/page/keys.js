// All keys, and the table that lists them.

import { byId, make } from "./elements.js";

export function bindKeys(actions) {
  const bindings = [
    [["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"], "← → ↑ ↓", "move (on the study of turning: turn)", (key) => actions.move(key)],
    [["+", "="], "+", "zoom in", () => actions.zoom(1.5)],
    [["-", "_"], "−", "zoom out", () => actions.zoom(1 / 1.5)],
    [["0", "Home"], "0", "whole slide", () => actions.fit()],
    [["1", "2", "3", "4", "5", "6", "7", "8", "9"], "1 – 9", "layer on or off", (key) => actions.layer(Number(key) - 1)],
    [["["], "[", "heat map weaker", () => actions.heat(-10)],
    [["]"], "]", "heat map stronger", () => actions.heat(10)],
    [["Enter"], "Enter", "object in the middle of the view", () => actions.pick()],
    [["n"], "n", "next object", () => actions.step(1)],
    [["b"], "b", "object before", () => actions.step(-1)],
    [["j"], "j", "next result", () => actions.result(1)],
    [["k"], "k", "result before", () => actions.result(-1)],
    [["Escape"], "Esc", "let the object go", () => actions.release()],
    [["?"], "?", "this list", () => byId("help").showModal()],
  ];
  const rows = bindings.map(([, shown, words]) => make("tr", {}, make("th", { scope: "row" }, make("kbd", {}, shown)), make("td", {}, words)));
  byId("keys").replaceChildren(...rows);
  byId("help-open").addEventListener("click", () => byId("help").showModal());
  byId("help-close").addEventListener("click", () => byId("help").close());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || byId("help").open || takesKeys(event.target, event.key)) return;
    const binding = bindings.find(([keys]) => keys.includes(event.key));
    if (!binding) return;
    event.preventDefault();
    binding[3](event.key);
  });
}

// Whether the focused control wants this key itself.
function takesKeys(target, key) {
  const tag = target.tagName;
  if (tag === "SELECT" || (tag === "INPUT" && target.type === "number")) return key !== "Escape";
  if (tag === "INPUT" && target.type === "range") return key.startsWith("Arrow") || key === "Home";
  return (tag === "BUTTON" || tag === "INPUT") && key === "Enter";
}
