// Tables: sorting by a click on a column's head, and copying as CSV. Whatever is shown is set as text, never as markup.
(() => {
  "use strict";

  const copied = (button, done) => {
    const before = button.dataset.label || (button.dataset.label = button.textContent);
    button.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = before), 1500);
  };

  // A page opened from a file may have no clipboard API: then through a text area.
  const copyByArea = (text) => {
    const area = document.createElement("textarea");
    area.value = text;
    area.setAttribute("readonly", "");
    area.className = "off-screen";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  };

  const copy = async (text, button) => {
    try {
      await navigator.clipboard.writeText(text);
      copied(button, true);
    } catch {
      copied(button, copyByArea(text));
    }
  };

  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

  // A text that a spreadsheet would run as a formula gets an apostrophe; a number is left a number, and a lower bound none.
  const cell = (element) => {
    if (element.dataset.bound !== undefined) return `≥ ${element.dataset.value}`;
    if (element.dataset.value !== undefined) return element.dataset.value;
    const text = element.textContent.trim();
    return quoted(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);
  };

  const csv = (table) => [...table.rows].map((row) => [...row.cells].map(cell).join(",")).join("\r\n") + "\r\n";

  // A link's text may be a number, too.
  const numberOf = (cell) => {
    const text = cell.dataset.value ?? cell.textContent.trim();
    return text === "" ? NaN : Number(text);
  };

  const compare = (a, b) => {
    const [first, second] = [numberOf(a), numberOf(b)];
    if (!Number.isNaN(first) && !Number.isNaN(second)) return first - second;
    if (!Number.isNaN(first)) return -1;
    if (!Number.isNaN(second)) return 1;
    return a.textContent.localeCompare(b.textContent, "en", { numeric: true });
  };

  const sort = (head) => {
    const table = head.closest("table");
    const column = [...head.parentElement.cells].indexOf(head);
    const descending = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const body = table.tBodies[0];
    const rows = [...body.rows].sort((a, b) => compare(a.cells[column], b.cells[column]));
    body.append(...(descending ? rows.reverse() : rows));
  };

  document.addEventListener("click", (event) => {
    if (!(event.target instanceof Element)) return;
    const head = event.target.closest("th[data-sorts]");
    if (head) sort(head);
    const button = event.target.closest("button[data-copies]");
    if (button) copy(csv(document.getElementById(button.dataset.copies)), button);
  });

  window.bench.tables = { copy, quoted };

  // A term's explanation, beside it while it is hovered or has the focus; Escape hides it. Without scripts it is the title.
  const explanation = document.createElement("div");
  explanation.id = "explanation";
  explanation.className = "explanation";
  explanation.setAttribute("role", "tooltip");
  explanation.hidden = true;
  document.body.append(explanation);
  let explained = null;
  const hide = () => {
    explanation.hidden = true;
    explained?.removeAttribute("aria-describedby");
    explained = null;
  };
  const place = () => {
    if (!explained) return;
    const at = explained.getBoundingClientRect();
    const box = explanation.getBoundingClientRect();
    const isBelow = at.bottom + box.height + 12 < innerHeight || at.top < box.height + 12;
    explanation.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - box.width - 8))}px`;
    explanation.style.top = `${isBelow ? at.bottom + 6 : at.top - box.height - 6}px`;
  };
  const explain = (term) => {
    hide();
    explained = term;
    explanation.textContent = term.dataset.explanation;
    explanation.hidden = false;
    term.setAttribute("aria-describedby", explanation.id);
    place();
  };
  for (const term of document.querySelectorAll(".term")) {
    term.dataset.explanation = term.title;
    term.removeAttribute("title");
    for (const begin of ["mouseenter", "focus"]) term.addEventListener(begin, () => explain(term));
    for (const end of ["mouseleave", "blur"]) term.addEventListener(end, hide);
  }
  addEventListener("keydown", (event) => event.key === "Escape" && hide());
  addEventListener("scroll", place, { capture: true, passive: true });

  // Paper has no folds.
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details:not([open])")) {
      details.open = true;
      details.dataset.folded = "";
    }
  });
  addEventListener("afterprint", () => {
    for (const details of document.querySelectorAll("details[data-folded]")) {
      details.open = false;
      delete details.dataset.folded;
    }
  });
})();
