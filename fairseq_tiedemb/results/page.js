"use strict";

// A heading sorts its table: upwards, then downwards. What has no value stands last.
const key = (cell) => (cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value));
const compare = (a, b) => {
  const [numberA, numberB] = [typeof a === "number", typeof b === "number"];
  return numberA && numberB ? a - b : a.localeCompare(b, "en", { numeric: true });
};
for (const heading of document.querySelectorAll("thead th")) {
  heading.querySelector("button").addEventListener("click", () => {
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of heading.parentNode.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = heading.closest("table").tBodies[0];
    const rows = [...body.rows].map((row) => [key(row.cells[heading.cellIndex]), row]);
    const numeric = rows.some(([value]) => typeof value === "number");
    const last = ([value]) => numeric && typeof value !== "number";
    rows.sort((a, b) => last(a) - last(b) || (last(a) ? 0 : (down ? -1 : 1) * compare(a[0], b[0])));
    body.append(...rows.map(([, row]) => row));
  });
}

// Light or dark as the system has it, until the button says otherwise.
const root = document.documentElement;
const store = {
  get: () => { try { return localStorage.getItem("theme"); } catch { return null; } },
  set: (theme) => { try { localStorage.setItem("theme", theme); } catch { /* a page of a file may have no store */ } },
};
if (store.get()) root.dataset.theme = store.get();
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  store.set(root.dataset.theme);
});

// Rows that do not fit the choice are hidden, and sections without any row.
const form = document.getElementById("filter");
const choose = () => {
  const [subject, run, text] = ["subject", "run", "text"].map((name) => form.elements[name].value.trim().toLowerCase());
  let count = 0;
  for (const section of document.querySelectorAll("main section")) {
    const title = section.querySelector("h2").textContent;
    let shown = 0;
    for (const table of section.querySelectorAll("table.run, table.missing, table.claims")) {
      const fits = (!subject || section.dataset.subject === subject) && (!run || table.className === run);
      const rows = [...table.tBodies[0].rows];
      for (const row of rows) row.hidden = !fits || !`${title} ${row.textContent}`.toLowerCase().includes(text);
      const left = rows.filter((row) => !row.hidden).length;
      table.parentNode.hidden = !left;
      shown += left;
    }
    section.hidden = !shown;
    const link = document.querySelector(`nav a[href="#${section.id}"]`);
    if (link) [link.parentNode.hidden, count] = [!shown, count + shown];
  }
  form.querySelector("output").textContent = `${count} rows`;
};
if (form) {
  form.addEventListener("input", choose);
  form.addEventListener("submit", (event) => event.preventDefault());
  choose();
}
