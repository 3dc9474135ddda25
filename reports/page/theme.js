// Before anything is painted: the theme that the reader chose last, or that of the system.
(() => {
  "use strict";
  window.bench = {}; // what our scripts know of each other
  let chosen = null;
  try {
    chosen = localStorage.getItem("bench-theme");
  } catch {
    // a page from a file may have no storage
  }
  const system = matchMedia("(prefers-color-scheme: dark)");
  const current = () => (chosen === "light" || chosen === "dark" ? chosen : system.matches ? "dark" : "light");
  const apply = () => {
    document.documentElement.dataset.theme = current();
    document.dispatchEvent(new CustomEvent("bench-theme"));
  };
  system.addEventListener("change", apply);
  document.addEventListener("click", (event) => {
    if (!(event.target instanceof Element) || !event.target.closest("#theme")) return;
    chosen = current() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("bench-theme", chosen);
    } catch {
      // it lasts as long as the page then
    }
    apply();
  });
  apply();
})();
