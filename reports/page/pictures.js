// Pictures that can be questioned: drawn by Bokeh from the page's JSON. Hover and arrow keys tell values, a click on the
// legend hides a series, a drag zooms (all pictures over time together), a double click goes back.
(() => {
  "use strict";
  const { pictures, themes } = JSON.parse(document.getElementById("pictures").textContent);
  const drawn = new Map(); // name → what was made for it
  Bokeh.set_log_level("warn");
  const coarse = matchMedia("(pointer: coarse)").matches;
  const HEIGHT = 340;
  const DASHES = { solid: [], dashed: [6, 4], dotted: [2, 3] };
  const MINUS = "\u2212";

  const theme = () => themes[document.documentElement.dataset.theme === "dark" ? "dark" : "light"];
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const known = (values) => values.filter((value) => value !== null);
  const element = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const number = (value) => {
    const digits = Math.abs(value) >= 1000 ? { maximumFractionDigits: 1 } : { maximumSignificantDigits: 4 };
    return value.toLocaleString("en", digits).replace("-", MINUS);
  };
  const told = (value, axis) => {
    const tick = axis.ticks.find(([at]) => Math.abs(at - value) < 1e-6);
    if (tick) return tick[1];
    if (axis.label === "percentile") return percentile(value);
    return axis.unit ? `${number(value)} ${axis.unit}` : number(value);
  };
  const percentile = (nines) => {
    const left = 10 ** -nines; // the share above
    return `${(100 * (1 - left)).toFixed(Math.max(1, Math.ceil(nines) - 1)).replace(/\.0+$/, "")}`;
  };

  // ---- ranges ----

  const extent = (picture, axis) => {
    let low = Infinity;
    let high = -Infinity;
    const see = (values) => {
      for (const value of values) {
        if (value === null) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    };
    for (const mark of picture.marks) {
      if (mark.kind === "whiskers" && axis === "y") see([...mark.low, ...mark.high]);
      else see(mark[axis]);
    }
    return low <= high ? [low, high] : [0, 1];
  };

  const bounds = (picture, which) => {
    const axis = picture[which];
    const [low, high] = extent(picture, which);
    if (axis.log) return [low / 1.08, high * 1.08];
    const room = (high - low || Math.abs(high) || 1) * 0.04;
    if (axis.ticks.length) return [Math.min(low, axis.ticks[0][0]) - 0.02, high + 0.06];
    return [axis.fromZero && low >= 0 ? 0 : low - room, high + room];
  };

  // Pictures of one group have the same range and zoom together. Each has a Range1d of its own, since each is a document.
  const groups = new Map(); // name → { whole: [start, end], now: [start, end] }
  const groupOf = (name) => {
    if (!groups.has(name)) {
      const ends = Object.values(pictures).flatMap((picture) => (picture.x.group === name ? [extent(picture, "x")] : []));
      const start = Math.min(...ends.map(([low]) => low));
      const end = Math.max(...ends.map(([, high]) => high));
      const room = (end - start || 1) * 0.01;
      const whole = [start - room, end + room];
      groups.set(name, { whole, now: whole });
    }
    return groups.get(name);
  };

  const follow = (name, now) => {
    groupOf(name).now = now;
    drawn.forEach(({ plot, picture }) => {
      const { start, end } = plot.x_range;
      if (picture.x.group !== name || (start === now[0] && end === now[1])) return;
      plot.x_range.setv({ start: now[0], end: now[1] });
    });
  };

  const rangeOf = (picture, which) => {
    if (which === "x" && picture.x.group) {
      const { whole, now } = groupOf(picture.x.group);
      const range = new Bokeh.Range1d({ start: whole[0], end: whole[1], reset_start: whole[0], reset_end: whole[1] });
      range.setv({ start: now[0], end: now[1] });
      return range;
    }
    const [start, end] = bounds(picture, which);
    return new Bokeh.Range1d({ start, end });
  };

  // ---- drawing ----

  const mixed = (ramp, share) => {
    const at = Math.max(0, Math.min(1, share)) * (ramp.length - 1);
    const low = Math.min(ramp.length - 2, Math.floor(at));
    const channel = (from) => {
      const [a, b] = [ramp[low], ramp[low + 1]].map((hex) => parseInt(hex.slice(from, from + 2), 16));
      return Math.round(a + (b - a) * (at - low));
    };
    return `rgb(${channel(1)}, ${channel(3)}, ${channel(5)})`;
  };

  const heatCells = (mark) => {
    const cells = { left: [], right: [], bottom: [], top: [], count: [] };
    mark.counts.forEach((row, j) =>
      row.forEach((count, i) => {
        if (!count) return;
        cells.left.push(mark.x[i]);
        cells.right.push(mark.x[i + 1]);
        cells.bottom.push(mark.y[j]);
        cells.top.push(mark.y[j + 1]);
        cells.count.push(count);
      }),
    );
    return cells;
  };

  // A few crowded cells must not make all others look empty, so the colour follows the root of the count.
  const heatColours = (counts) => {
    const most = Math.sqrt(counts.reduce((a, b) => Math.max(a, b), 1));
    return counts.map((count) => mixed(theme().ramp, most > 1 ? (Math.sqrt(count) - 1) / (most - 1) : 1));
  };

  const nan = (values) => values.map((value) => (value === null ? NaN : value));

  const addMark = (plot, mark) => {
    if (mark.kind === "line") {
      const options = { line_width: 2, line_dash: DASHES[mark.stroke] };
      const source = { x: nan(mark.x), y: nan(mark.y) };
      return mark.steps ? plot.step({ ...source, mode: "after", ...options }) : plot.line({ ...source, ...options });
    }
    if (mark.kind === "dots") {
      const marker = mark.crosses ? "x" : "circle";
      const size = mark.crosses ? 8 : 5;
      return plot.scatter({ x: nan(mark.x), y: nan(mark.y), marker, size, line_width: mark.crosses ? 2 : 0, fill_alpha: 0.55 });
    }
    if (mark.kind === "heat") {
      const [left, right, bottom, top] = ["left", "right", "bottom", "top"].map((field) => ({ field }));
      const source = new Bokeh.ColumnDataSource({ data: heatCells(mark) });
      return plot.quad({ left, right, bottom, top, source, line_color: null });
    }
    return plot.segment({ x0: nan(mark.x), x1: nan(mark.x), y0: nan(mark.low), y1: nan(mark.high), line_width: 5, line_alpha: 0.4 });
  };

  const paintMark = (mark, renderer) => {
    const { glyph, data_source: source } = renderer;
    if (mark.kind === "heat") {
      source.data = { ...source.data, colour: heatColours(source.data.count) };
      glyph.fill_color = { field: "colour" };
      return;
    }
    const colour = { value: theme().colours[mark.colour] };
    glyph.line_color = colour;
    if (mark.kind === "dots") glyph.fill_color = colour;
  };

  const paint = ({ plot, picture, renderers, rule, marks }) => {
    const [ink, soft, line, card] = ["--ink", "--soft", "--line", "--card"].map(style);
    plot.setv({ background_fill_color: card, border_fill_color: card, outline_line_color: null });
    for (const axis of [...plot.xaxes, ...plot.yaxes]) {
      axis.setv({
        axis_label_text_color: ink,
        major_label_text_color: soft,
        axis_line_color: line,
        major_tick_line_color: line,
        minor_tick_line_color: null,
      });
    }
    for (const grid of [...plot.xgrids, ...plot.ygrids]) grid.setv({ grid_line_color: line, grid_line_alpha: 0.7 });
    rule.line_color = soft;
    picture.marks.forEach((mark, k) => paintMark(mark, renderers[k]));
    for (const swatch of marks.querySelectorAll("[data-colour]")) swatch.style.color = theme().colours[swatch.dataset.colour];
    const key = marks.querySelector(".ramp");
    if (key) key.style.background = `linear-gradient(to right, ${theme().ramp.join(", ")})`;
  };

  // Bokeh's ticker of a log axis leaves half a decade without a tick: 1, 2 and 5 of each decade, as long as some are in sight.
  const logTicker = ({ start, end }) => {
    const ticks = [];
    for (let decade = 10 ** Math.floor(Math.log10(start)); decade <= end; decade *= 10) {
      for (const mantissa of end / start > 1000 ? [1] : [1, 2, 5]) {
        if (mantissa * decade >= start && mantissa * decade <= end) ticks.push(mantissa * decade);
      }
    }
    return ticks.length > 2 ? new Bokeh.FixedTicker({ ticks }) : new Bokeh.BasicTicker({ num_minor_ticks: 0 });
  };

  const axisOf = (plot, which, axis, narrow) => {
    const [made] = plot[`${which}axes`];
    made.setv({
      axis_label: axis.text,
      axis_label_text_font: "system-ui, sans-serif",
      axis_label_text_font_style: "normal",
      axis_label_text_font_size: "12px",
      major_label_text_font: "system-ui, sans-serif",
      major_label_text_font_size: "11px",
      major_tick_in: 0,
      formatter: new Bokeh.NumeralTickFormatter({ format: "0,0.[0000]" }),
    });
    if (axis.ticks.length) {
      made.ticker = new Bokeh.FixedTicker({ ticks: axis.ticks.map(([at]) => at) });
      made.major_label_overrides = new Map(axis.ticks);
    } else if (axis.log) {
      made.ticker = logTicker(plot[`${which}_range`]);
    } else {
      made.ticker = new Bokeh.BasicTicker({ desired_num_ticks: which === "x" ? (narrow ? 4 : 8) : 6, num_minor_ticks: 0 });
    }
  };

  const build = async (figure) => {
    const picture = pictures[figure.dataset.picture];
    const place = figure.querySelector(".plot");
    const narrow = place.clientWidth < 500;
    const tools = ["box_zoom", "pan", "wheel_zoom", "reset", "save"];
    const plot = new Bokeh.Plotting.Figure({
      height: narrow ? 280 : HEIGHT,
      sizing_mode: "stretch_width",
      x_range: rangeOf(picture, "x"),
      y_range: rangeOf(picture, "y"),
      x_axis_type: picture.x.log ? "log" : "linear",
      y_axis_type: picture.y.log ? "log" : "linear",
      toolbar_location: "above",
      min_border_right: 12,
      tools: tools.join(","),
      // a finger scrolls the page unless the reader picks a tool
      active_drag: coarse ? null : "box_zoom",
      active_scroll: null,
      active_inspect: null,
    });
    plot.setv({ title: null });
    plot.toolbar.setv({ logo: null, group: false });
    axisOf(plot, "x", picture.x, narrow);
    axisOf(plot, "y", picture.y, narrow);
    const heatFirst = picture.marks.map((mark) => addMark(plot, mark));
    const rule = new Bokeh.Span({ dimension: "height", location: 0, visible: false, line_dash: [2, 2], level: "overlay" });
    plot.add_layout(rule);
    const marks = figure.querySelector(".legend");
    const made = { plot, picture, renderers: heatFirst, rule, marks, place, figure, at: null };
    legend(made);
    paint(made);
    made.view = await Bokeh.Plotting.show(plot, place);
    listen(made);
    drawn.set(figure.dataset.picture, made);
    figure.dataset.drawn = "";
    return made;
  };

  // ---- legend ----

  const legend = ({ picture, renderers, marks }) => {
    const names = [...new Set(picture.marks.filter((mark) => mark.kind !== "heat").map((mark) => mark.name))];
    const show = (name, visible) => {
      picture.marks.forEach((mark, k) => {
        if (mark.name === name) renderers[k].visible = visible;
      });
      for (const button of marks.querySelectorAll("button")) {
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
      const swatch = element("i", `swatch ${mark.kind} ${mark.stroke || ""}`, mark.crosses ? "×" : "");
      swatch.dataset.colour = mark.colour;
      button.append(swatch, name);
      button.addEventListener("click", () => show(name, button.getAttribute("aria-pressed") !== "true"));
      button.addEventListener("dblclick", () => names.forEach((other) => show(other, other === name)));
      marks.append(button);
    }
    const heat = picture.marks.find((mark) => mark.kind === "heat");
    if (heat) {
      const key = element("span", "key", `1 ${heat.name.replace(/s$/, "")} `);
      const most = heat.counts.reduce((a, row) => row.reduce((b, count) => Math.max(b, count), a), 1);
      key.append(element("i", "ramp"), ` ${number(most)}`);
      marks.append(key);
    }
  };

  // ---- values under the pointer ----

  const share = (range, log, value) =>
    log ? Math.log(value / range.start) / Math.log(range.end / range.start) : (value - range.start) / (range.end - range.start);

  const before = (values, x) => {
    let [low, high] = [0, values.length]; // the first value above x
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] <= x) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  };

  const onLine = (mark, x) => {
    const xs = mark.x;
    if (!xs.length || x < xs[0] - 1e-9) return mark.steps ? -1 : 0;
    const index = before(xs, x);
    if (mark.steps || index + 1 >= xs.length) return index;
    return x - xs[index] <= xs[index + 1] - x ? index : index + 1;
  };

  const nearest = (made, xs, ys, x, y, withinPixels) => {
    const { plot, picture } = made;
    const [width, height] = [plot.inner_width || 600, plot.inner_height || 250];
    let best = -1;
    let least = withinPixels ** 2;
    for (let k = 0; k < xs.length; k += 1) {
      if (xs[k] === null || ys[k] === null) continue;
      const dx = (share(plot.x_range, picture.x.log, xs[k]) - share(plot.x_range, picture.x.log, x)) * width;
      const dy = (share(plot.y_range, picture.y.log, ys[k]) - share(plot.y_range, picture.y.log, y)) * height;
      const distance = dx * dx + dy * dy;
      if (distance < least) [best, least] = [k, distance];
    }
    return best;
  };

  const values = (made, x, y) => {
    const { picture, renderers } = made;
    const rows = [];
    picture.marks.forEach((mark, k) => {
      if (!renderers[k].visible) return;
      if (mark.kind === "line") {
        const index = onLine(mark, x);
        if (index >= 0 && mark.y[index] !== null) rows.push({ mark, at: mark.x[index], text: told(mark.y[index], picture.y) });
      } else if (mark.kind === "dots" && y !== null) {
        const index = nearest(made, mark.x, mark.y, x, y, 18);
        if (index < 0) return;
        const note = mark.notes[index] ? ` · ${mark.notes[index]}` : "";
        rows.push({ mark, text: `${told(mark.y[index], picture.y)} at ${told(mark.x[index], picture.x)}${note}` });
      } else if (mark.kind === "whiskers") {
        const index = nearest(made, mark.x, mark.x.map(() => y ?? 1), x, y ?? 1, 14);
        if (index >= 0) {
          const interval = `${number(mark.low[index])} – ${told(mark.high[index], picture.y)}`;
          rows.push({ mark, text: interval, name: `${mark.name}, 95 % interval` });
        }
      } else if (mark.kind === "heat" && y !== null) {
        const [i, j] = [before(mark.x, x), before(mark.y, y)];
        const count = mark.counts[j]?.[i];
        if (count === undefined) return;
        const where = `${number(mark.y[j])} – ${told(mark.y[j + 1], picture.y)}`;
        rows.push({ mark, text: number(count), name: `${mark.name} of ${where}` });
      }
    });
    return rows;
  };

  const hide = (made) => {
    made.tip.hidden = true;
    made.rule.visible = false;
    made.at = null;
  };

  const tell = (made, x, y, sx, sy) => {
    const { picture, tip, plot, rule, place } = made;
    const { start, end } = plot.x_range;
    const rows = x < start || x > end ? [] : values(made, x, y);
    if (!rows.length) {
      hide(made);
      return;
    }
    made.at = x;
    const lines = rows.filter((row) => row.at !== undefined);
    const head = lines.length && lines.every((row) => row.at === lines[0].at) ? lines[0].at : x;
    rule.setv({ location: head, visible: lines.length > 0 });
    tip.replaceChildren();
    tip.append(element("b", "", `${picture.x.label} ${told(head, picture.x)}`));
    for (const row of rows) {
      const line = element("div");
      const swatch = element("i", `swatch ${row.mark.kind} ${row.mark.stroke || ""}`);
      if (row.mark.colour) swatch.style.color = theme().colours[row.mark.colour];
      line.append(swatch, element("span", "", row.name || row.mark.name), element("em", "", row.text));
      tip.append(line);
    }
    tip.hidden = false;
    const width = place.clientWidth;
    const left = sx + 16 + tip.offsetWidth > width ? sx - 16 - tip.offsetWidth : sx + 16;
    tip.style.left = `${Math.max(0, Math.min(left, width - tip.offsetWidth))}px`;
    tip.style.top = `${Math.max(0, sy - tip.offsetHeight - 12)}px`;
  };

  // The arrow keys walk through the picture; what they find is read out.
  const step = (made, direction) => {
    const { plot, picture, place } = made;
    const { start, end } = plot.x_range;
    const log = picture.x.log;
    const along = made.at === null ? 0.5 : share(plot.x_range, log, made.at) + direction * 0.02;
    const clipped = Math.max(0, Math.min(1, along));
    const x = log ? start * (end / start) ** clipped : start + (end - start) * clipped;
    tell(made, x, null, place.clientWidth * (0.08 + 0.9 * clipped), 120);
    if (!made.tip.hidden) made.at = x;
  };

  const listen = (made) => {
    const { plot, place } = made;
    made.tip = element("div", "tip");
    made.tip.hidden = true;
    made.tip.setAttribute("role", "status");
    place.append(made.tip);
    const over = (event) => tell(made, event.x, event.y, event.sx, event.sy);
    plot.on_event("mousemove", over);
    plot.on_event("tap", over);
    plot.on_event("mouseleave", () => hide(made));
    plot.on_event("doubletap", () => plot.reset.emit());
    const { x, y } = made.picture;
    const rescale = () => {
      if (x.log) plot.xaxes[0].ticker = logTicker(plot.x_range);
      if (y.log) plot.yaxes[0].ticker = logTicker(plot.y_range);
    };
    plot.on_event("rangesupdate", rescale);
    plot.on_event("reset", rescale);
    const group = x.group;
    if (group) {
      plot.on_event("rangesupdate", () => follow(group, [plot.x_range.start, plot.x_range.end]));
      plot.on_event("reset", () => follow(group, groupOf(group).whole));
    }
    place.addEventListener("keydown", (event) => {
      if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
        step(made, event.key === "ArrowLeft" ? -1 : 1);
        event.preventDefault();
      } else if (event.key === "Escape") hide(made);
    });
    place.addEventListener("blur", () => hide(made));
  };

  // ---- the data behind a picture, as CSV ----

  const csv = ({ x, y, marks }) => {
    const rows = [["series", x.text, y.text, "to", "note"]];
    for (const mark of marks) {
      if (mark.kind === "line" || mark.kind === "dots") {
        mark.x.forEach((at, k) => rows.push([mark.name, at, mark.y[k], "", (mark.notes || [])[k] || ""]));
      } else if (mark.kind === "whiskers") {
        mark.x.forEach((at, k) => rows.push([mark.name, at, mark.low[k], mark.high[k], "95 % interval"]));
      } else {
        mark.counts.forEach((row, j) =>
          row.forEach((count, i) => count && rows.push([mark.name, mark.x[i], mark.y[j], mark.y[j + 1], count])),
        );
      }
    }
    const safe = (value) => {
      const text = value === null ? "" : String(value);
      return window.benchQuoted(typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text);
    };
    return rows.map((row) => row.map(safe).join(",")).join("\r\n") + "\r\n";
  };

  // ---- when ----

  const figures = [...document.querySelectorAll("figure[data-picture]")];
  const begun = new Map();
  const begin = (figure) => {
    if (!begun.has(figure)) begun.set(figure, build(figure));
    return begun.get(figure);
  };
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        begin(entry.target);
      }
    },
    { rootMargin: "200px" },
  );
  const idle = window.requestIdleCallback || ((callback) => setTimeout(callback, 50));
  const rest = () => {
    const next = figures.find((figure) => !begun.has(figure));
    if (!next) {
      Promise.all(begun.values()).then(() => (document.documentElement.dataset.pictures = "drawn"));
      return;
    }
    begin(next).then(() => idle(rest));
  };

  document.addEventListener("bench-theme", () => drawn.forEach(paint));
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element && event.target.closest("button[data-copies-picture]");
    if (button) window.benchCopy(csv(pictures[button.dataset.copiesPicture]), button);
  });

  // On paper each picture is a drawing of lines, not of the screen's points.
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

  window.benchPictures = drawn;
  for (const figure of figures) seen.observe(figure);
  addEventListener("load", () => idle(rest));
})();
