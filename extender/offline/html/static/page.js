"use strict";
// All of this is a convenience: the lists, the map's colours and every link are there without it.

const CELL = 10;
const MANY = 10;

// ---- filters over lists

function addFilter(list) {
  const items = [...list.querySelectorAll("tbody tr, :scope > li")];
  if (items.length < MANY) return;
  const input = document.createElement("input");
  input.type = "search";
  input.className = "find";
  input.placeholder = "find " + list.dataset.what;
  input.setAttribute("aria-label", input.placeholder);
  input.addEventListener("input", () => {
    const sought = input.value.toLowerCase();
    for (const item of items) item.hidden = !item.textContent.toLowerCase().includes(sought);
    for (const group of list.querySelectorAll("details")) group.hidden = !group.querySelector("tbody tr:not([hidden])");
  });
  list.before(input);
}

// ---- the map of nodes

function nodeMap(figure) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const told = figure.querySelector(".told");
  figure.querySelectorAll("svg.cells").forEach((svg, at) => zone(svg, data.groups[at], data.columns, figure, told));
}

function zone(svg, cells, columns, figure, told) {
  // Not in the SVG, all of which would be painted again at each move.
  const cursor = document.createElement("span");
  cursor.className = "cursor";
  let current = -1;

  function show(index) {
    if (index < 0 || index >= cells.length || index === current) return;
    current = index;
    const box = svg.getBoundingClientRect(), around = svg.parentNode.getBoundingClientRect();
    const side = box.width / columns;
    const x = box.left - around.left + (index % columns) * side;
    const y = box.top - around.top + Math.floor(index / columns) * side;
    cursor.style.width = cursor.style.height = side + "px";
    cursor.style.transform = `translate(${x}px, ${y}px)`;
    svg.after(cursor);
    told.textContent = cells[index][0] + ": " + cells[index][1];
  }

  function under(event) {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const column = Math.floor(((event.clientX - box.left) * scale) / CELL);
    const row = Math.floor(((event.clientY - box.top) * scale) / CELL);
    return column < 0 || column >= columns ? -1 : row * columns + column;
  }

  function open() {
    if (current >= 0 && figure.dataset.node)
      location.href = figure.dataset.node.replace("NAME", encodeURIComponent(cells[current][0]));
  }

  svg.addEventListener("pointermove", (event) => show(under(event)));
  svg.addEventListener("click", (event) => {
    const index = under(event);
    show(index);
    if (index === current) open();
  });
  svg.addEventListener("focus", () => show(Math.max(current, 0)));
  svg.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    if (event.key === "Enter") open();
    if (!(event.key in steps)) return;
    event.preventDefault();
    show(current + steps[event.key]);
  });
}

// ---- the steps of a recording

function steps(form) {
  const input = form.querySelector("input[type=range]");
  input.addEventListener("input", () => (form.querySelector("output").textContent = input.value + " of " + input.max));
  input.addEventListener("change", () => form.submit());
}

document.querySelectorAll(".filterable").forEach(addFilter);
document.querySelectorAll("figure.map").forEach(nodeMap);
document.querySelectorAll("form.steps").forEach(steps);
document.addEventListener("keydown", (event) => {
  const first = document.querySelector("input.find");
  if (event.key !== "/" || !first || event.target.matches("input, textarea, select")) return;
  event.preventDefault();
  first.focus();
});
