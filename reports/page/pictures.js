// Interactive pictures: hover and arrow keys show values, a click on the legend hides a series, a drag zooms (all
// pictures over time together), a double click goes back. One is drawn at a time: what is in sight first, the rest in idle time.
(() => {
  "use strict";
  const { pictures, figure: draw, paint, rescale, groupOf } = window.bench.drawing;
  const { element, number, listen } = window.bench.values;
  const { copy, quoted } = window.bench.tables;
  const { toolButtons } = window.bench.tools;
  const drawn = new Map(); // name → what was made for it

  const legend = ({ picture, renderers, legendPlace }) => {
    const names = [...new Set(picture.marks.filter((mark) => mark.kind !== "heat").map((mark) => mark.name))];
    const show = (name, visible) => {
      picture.marks.forEach((mark, k) => {
        if (mark.name === name) renderers[k].visible = visible;
      });
      for (const button of legendPlace.querySelectorAll("button")) {
        if (button.dataset.series === name) button.setAttribute("aria-pressed", String(visible));
      }
    };
    for (const name of names) {
      const mark = picture.marks.find((one) => one.name === name);
      const button = element("button");
      button.type = "button";
      button.dataset.series = name;
      button.title = "Click hides or shows this series, a double click shows it alone";
      button.setAttribute("aria-pressed", "true");
      const swatch = element("i", `swatch ${mark.kind} ${mark.stroke || ""}`, { cross: "×", ring: "○" }[mark.shape] || "");
      swatch.dataset.colour = mark.colour;
      button.append(swatch, name);
      button.addEventListener("click", () => show(name, button.getAttribute("aria-pressed") !== "true"));
      button.addEventListener("dblclick", () => names.forEach((other) => show(other, other === name)));
      legendPlace.append(button);
    }
    const heat = picture.marks.find((mark) => mark.kind === "heat");
    if (heat) {
      const key = element("span", "key", `1 ${heat.name.replace(/s$/, "")} `);
      const most = heat.counts.reduce((a, row) => row.reduce((b, count) => Math.max(b, count), a), 1);
      key.append(element("i", "ramp"), ` ${number(most)}`);
      legendPlace.append(key);
    }
  };

  // Pictures of one group zoom together.
  const follow = (name, now) => {
    groupOf(name).now = now;
    drawn.forEach(({ plot, picture }) => {
      const { start, end } = plot.x_range;
      if (picture.x.group !== name || (start === now[0] && end === now[1])) return;
      plot.x_range.setv({ start: now[0], end: now[1] });
    });
  };

  const zooms = (made) => {
    const { plot, picture } = made;
    const { group } = picture.x;
    plot.on_event("doubletap", () => plot.reset.emit());
    plot.on_event("rangesupdate", () => {
      rescale(made);
      if (group) follow(group, [plot.x_range.start, plot.x_range.end]);
    });
    plot.on_event("reset", () => {
      rescale(made);
      if (group) follow(group, groupOf(group).whole);
    });
  };

  const build = async (figure) => {
    const name = figure.dataset.picture;
    const picture = pictures[name];
    const [place, legendPlace, toolPlace] = [".plot", ".legend", ".tools"].map((one) => figure.querySelector(one));
    const made = { ...draw(picture, place.clientWidth < 500), picture, place, legendPlace, toolPlace, at: null };
    legend(made);
    paint(made);
    const root = new Bokeh.Document();
    root.add_root(made.plot);
    made.view = (await Bokeh.embed.add_document_standalone(root, place)).get(made.plot);
    listen(made);
    zooms(made);
    toolButtons(made, name);
    drawn.set(name, made);
    if (!root.is_idle) await new Promise((go) => root.idle.connect(go)); // it is on the screen
    if (!performance.getEntriesByName("bench-first-picture").length) performance.mark("bench-first-picture");
    figure.dataset.drawn = "";
  };

  // The data behind a picture.
  const csv = ({ x, y, marks }) => {
    const rows = [["series", x.text, y.text, "to", "note"]];
    for (const mark of marks) {
      if (mark.kind === "line" || mark.kind === "dots") {
        mark.x.forEach((at, k) => rows.push([mark.name, at, mark.y[k], "", (mark.notes || [])[k] || ""]));
      } else if (mark.kind === "spans") {
        mark.y.forEach((at, k) => rows.push([mark.name, mark.low[k], at, mark.high[k], `95 % interval of ${x.text}`]));
      } else if (mark.kind === "whiskers") {
        mark.x.forEach((at, k) => rows.push([mark.name, at, mark.low[k], mark.high[k], "95 % interval"]));
      } else if (mark.kind === "band") {
        rows.push([mark.name, mark.low, "", mark.high, `range of ${x.text}`]);
      } else if (mark.kind === "heat") {
        mark.counts.forEach((row, j) =>
          row.forEach((count, i) => count && rows.push([mark.name, mark.x[i], mark.y[j], mark.y[j + 1], count])),
        );
      }
    }
    const safe = (value) => {
      const text = value === null ? "" : String(value);
      return quoted(typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text);
    };
    return rows.map((row) => row.map(safe).join(",")).join("\r\n") + "\r\n";
  };

  const figures = [...document.querySelectorAll("figure[data-picture]")];
  const begun = new Map(); // figure → the promise of its picture
  const begin = (figure) => {
    if (!begun.has(figure)) begun.set(figure, build(figure));
    return begun.get(figure);
  };

  // Between two pictures the browser shows the one and takes what the reader does. A picture in sight does not wait for idleness.
  const inSight = new Set();
  const near = new IntersectionObserver(
    (entries) => entries.forEach(({ target, isIntersecting }) => inSight[isIntersecting ? "add" : "delete"](target)),
    { rootMargin: "200px" },
  );
  const pause = () => new Promise((go) => setTimeout(go));
  const idle = () => new Promise((go) => (window.requestIdleCallback ? requestIdleCallback(go) : setTimeout(go, 50)));
  const drawAll = async () => {
    await new Promise((go) => requestAnimationFrame(() => setTimeout(go))); // the page, and what is in sight of it
    for (let left = figures; left.length; left = figures.filter((figure) => !begun.has(figure))) {
      const seen = () => left.find((figure) => inSight.has(figure));
      if (drawn.size) await (seen() ? pause() : idle());
      const next = seen() || left[0];
      near.unobserve(next);
      await begin(next);
    }
    await Promise.all(begun.values());
    performance.mark("bench-all-pictures");
    document.documentElement.dataset.pictures = "drawn";
  };

  document.addEventListener("bench-theme", () => drawn.forEach(paint));
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element && event.target.closest("button[data-copies-picture]");
    if (button) copy(csv(pictures[button.dataset.copiesPicture]), button);
  });

  // On paper each picture is a drawing of lines, not of the screen's points. Printing also draws those that are not drawn yet:
  // a picture needs no more than microtasks, which run between two listeners.
  addEventListener("beforeprint", () => figures.forEach(begin));
  addEventListener("beforeprint", () => {
    drawn.forEach(({ view, place }) => {
      const image = element("img", "paper");
      image.alt = "";
      const svg = view.export("svg", false).ctx.get_serialized_svg(true);
      image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
      place.after(image);
    });
  });
  addEventListener("afterprint", () => document.querySelectorAll("img.paper").forEach((image) => image.remove()));

  window.bench.drawn = drawn;
  for (const figure of figures) near.observe(figure);
  drawAll();
})();
