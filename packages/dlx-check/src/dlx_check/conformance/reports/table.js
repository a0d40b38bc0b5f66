"use strict";
const table = document.querySelector("table.sorted");
const body = table.tBodies[0];
const rows = [...body.rows];
const form = document.forms[0];
const texts = new Map(rows.map((row) => [row, [0, 1, 3].map((n) => row.cells[n].textContent).join(" ").toLowerCase()]));

form.hidden = false;
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", filter);
form.querySelector("button").addEventListener("click", () => {
  form.reset();
  filter();
});

function filter() {
  const { text, role, level, result } = form.elements;
  const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of rows) {
    row.hidden = !(words.every((word) => texts.get(row).includes(word))
      && (!role.value || row.dataset.role === role.value)
      && (!level.value || row.dataset.level === level.value)
      && (!result.value || row.dataset.results.split(" ").includes(result.value)));
  }
  const shown = rows.filter((row) => !row.hidden).length;
  document.querySelector("output").value = `${shown} of ${rows.length} checks`;
}

for (const button of table.tHead.querySelectorAll("button")) {
  button.addEventListener("click", () => sort(button.closest("th")));
}

function sort(head) {
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const each of table.tHead.querySelectorAll("[aria-sort]")) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = (row) => row.cells[head.cellIndex].dataset.key;
  const order = (a, b) => key(a).localeCompare(key(b), "en", { numeric: true });
  // Each order starts from that of the suite, so equal rows keep it.
  body.append(...[...rows].sort((a, b) => (down ? order(b, a) : order(a, b))));
}

filter();
