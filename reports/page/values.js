// The values of a picture at the point under the pointer, or under the arrow keys.
(() => {
  "use strict";
  const { theme } = window.bench.drawing;
  const MINUS = "\u2212";

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
  const percentile = (nines) => {
    const left = 10 ** -nines; // the share above
    return `${(100 * (1 - left)).toFixed(Math.max(1, Math.ceil(nines) - 1)).replace(/\.0+$/, "")}`;
  };

  const valueText = (value, axis) => {
    const tick = axis.ticks.find(([at]) => Math.abs(at - value) < 1e-6);
    if (tick) return tick[1];
    if (axis.nines) return percentile(value);
    return axis.unit ? `${number(value)} ${axis.unit}` : number(value);
  };

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

  // The point nearest to (x, y) on the screen, or -1 where none is within so many pixels; without a y, along x alone.
  const nearest = (made, xs, ys, x, y, withinPixels) => {
    const { plot, picture } = made;
    const across = (value) => share(plot.x_range, picture.x.log, value) * (plot.inner_width || 600);
    const up = (value) => share(plot.y_range, picture.y.log, value) * (plot.inner_height || 250);
    let best = -1;
    let least = withinPixels ** 2;
    for (let k = 0; k < xs.length; k += 1) {
      if (xs[k] === null || ys[k] === null) continue;
      const distance = (across(xs[k]) - across(x)) ** 2 + (y === null ? 0 : (up(ys[k]) - up(y)) ** 2);
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
        if (index >= 0 && mark.y[index] !== null) rows.push({ mark, at: mark.x[index], text: valueText(mark.y[index], picture.y) });
      } else if (mark.kind === "dots") {
        const index = nearest(made, mark.x, mark.y, x, y, 18);
        if (index < 0) return;
        const text = `${valueText(mark.y[index], picture.y)} at ${valueText(mark.x[index], picture.x)}`;
        rows.push({ mark, text, note: mark.notes[index], dot: mark.x[index] });
      } else if (mark.kind === "whiskers") {
        const index = nearest(made, mark.x, mark.low, x, null, 14);
        if (index >= 0) {
          const interval = `${number(mark.low[index])} – ${valueText(mark.high[index], picture.y)}`;
          rows.push({ mark, text: interval, name: `${mark.name}, 95 % interval` });
        }
      } else if (mark.kind === "heat" && y !== null) {
        const [i, j] = [before(mark.x, x), before(mark.y, y)];
        const count = mark.counts[j]?.[i];
        if (count === undefined) return;
        const where = `${number(mark.y[j])} – ${valueText(mark.y[j + 1], picture.y)}`;
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

  const showTip = (made, x, y, sx, sy) => {
    const { picture, tip, plot, rule, place } = made;
    const { start, end } = plot.x_range;
    const rows = x < start || x > end ? [] : values(made, x, y);
    if (!rows.length) {
      hide(made);
      return;
    }
    made.at = x;
    const lines = rows.filter((row) => row.at !== undefined);
    const dots = rows.filter((row) => row.dot !== undefined);
    const agree = (some, key) => some.length > 0 && some.every((row) => row[key] === some[0][key]);
    const ofDots = !lines.length && agree(dots, "dot") ? dots[0].dot : x;
    const head = agree(lines, "at") ? lines[0].at : ofDots;
    rule.setv({ location: head, visible: lines.length > 0 });
    tip.replaceChildren();
    tip.append(element("b", "", `${picture.x.label} ${valueText(head, picture.x)}`));
    for (const row of rows) {
      const line = element("div");
      const swatch = element("i", `swatch ${row.mark.kind} ${row.mark.stroke || ""}`);
      if (row.mark.colour) swatch.style.color = theme().colours[row.mark.colour];
      line.append(swatch, element("span", "", row.name || row.mark.name), element("em", "", row.text));
      tip.append(line);
      if (row.note) tip.append(element("p", "", row.note));
    }
    tip.hidden = false;
    const width = place.clientWidth;
    const left = sx + 16 + tip.offsetWidth > width ? sx - 16 - tip.offsetWidth : sx + 16;
    tip.style.left = `${Math.max(0, Math.min(left, width - tip.offsetWidth))}px`;
    tip.style.top = `${Math.max(0, sy - tip.offsetHeight - 12)}px`;
  };

  // The arrow keys walk from point to point, at least a fiftieth of the picture each; what they find is read out.
  const step = (made, direction) => {
    const { plot, picture, renderers, place } = made;
    const { start, end } = plot.x_range;
    const { log } = picture.x;
    const seen = picture.marks.filter((mark, k) => renderers[k].visible && mark.kind !== "heat");
    const lines = seen.filter((mark) => mark.kind === "line");
    const points = (lines.length ? lines : seen).flatMap((mark) => (mark.x || []).filter((x, k) => !mark.y || mark.y[k] !== null));
    const along = (x) => share(plot.x_range, log, x);
    const from = made.at === null ? (direction > 0 ? -1 : 2) : along(made.at);
    const ahead = points.filter((x) => x !== null && x >= start && x <= end && (along(x) - from) * direction > 1e-9);
    const far = ahead.filter((x) => (along(x) - from) * direction >= 0.02);
    const [choice, pick] = far.length ? [far, direction > 0 ? Math.min : Math.max] : [ahead, direction > 0 ? Math.max : Math.min];
    if (!choice.length) return;
    const x = choice.reduce((one, other) => pick(one, other));
    showTip(made, x, null, place.clientWidth * (0.08 + 0.9 * along(x)), 120);
    made.at = x;
  };

  const listen = (made) => {
    const { plot, place } = made;
    made.tip = element("div", "tip");
    made.tip.hidden = true;
    made.tip.setAttribute("role", "status");
    place.append(made.tip);
    const over = (event) => showTip(made, event.x, event.y, event.sx, event.sy);
    plot.on_event("mousemove", over);
    plot.on_event("tap", over);
    // a finger leaves the picture when it is lifted: the tip that it opened must stay
    let finger = false;
    place.addEventListener("pointerdown", (event) => (finger = event.pointerType === "touch"), true);
    plot.on_event("mouseleave", () => finger || hide(made));
    place.addEventListener("keydown", (event) => {
      if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
        step(made, event.key === "ArrowLeft" ? -1 : 1);
        event.preventDefault();
      } else if (event.key === "Escape") hide(made);
    });
    place.addEventListener("blur", () => hide(made));
  };

  window.bench.values = { element, number, listen };
})();
