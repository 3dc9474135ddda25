// How a picture is drawn: its ranges, its axes and its marks as Bokeh's, in the colours of the theme.
(() => {
  "use strict";
  const { pictures, themes } = JSON.parse(document.getElementById("pictures").textContent);
  const coarse = matchMedia("(pointer: coarse)").matches;
  const SHAPES = {
    speck: { marker: "circle", size: 5, line_width: 0, fill_alpha: 0.55 },
    point: { marker: "circle", size: 8, line_width: 0 },
    cross: { marker: "x", size: 8, line_width: 2, fill_alpha: 0.55 },
    ring: { marker: "circle", size: 15, line_width: 2, fill_alpha: 0 },
  };
  const DASHES = { solid: [], dashed: [6, 4], dotted: [2, 3] };
  Bokeh.set_log_level("warn");

  const theme = () => themes[document.documentElement.dataset.theme === "dark" ? "dark" : "light"];
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

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
      if (mark.kind === "band") {
        if (axis === "x") see([mark.low, mark.high]);
        continue;
      }
      const across = { whiskers: "y", spans: "x" }[mark.kind];
      if (axis === across) see([...mark.low, ...mark.high]);
      else see(mark[axis]);
    }
    return low <= high ? [low, high] : [0, 1];
  };

  const bounds = (picture, which) => {
    const axis = picture[which];
    const [low, high] = extent(picture, which);
    if (axis.log) {
      const room = Math.max(1.08, (high / low) ** 0.04);
      return [low / room, high * room];
    }
    const room = (high - low || Math.abs(high) || 1) * 0.04;
    if (axis.ticks.length && which === "y") return [Math.min(low, axis.ticks[0][0] - 0.6), Math.max(high, axis.ticks.at(-1)[0] + 0.6)];
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

  // A stroke shows nothing of a point between gaps. Its dot has the colour of its line, and is hidden with it.
  const withDots = (plot, mark, line) => {
    const [x, y] = [mark.x, mark.y].map((values) => mark.alone.map((k) => values[k]));
    const dots = plot.scatter({ x, y, ...SHAPES.point });
    line.connect(line.properties.visible.change, () => (dots.visible = line.visible));
    line.glyph.connect(line.glyph.properties.line_color.change, () => (dots.glyph.fill_color = line.glyph.line_color));
    return line;
  };

  const addMark = (plot, mark) => {
    if (mark.kind === "trail") return plot.line({ x: nan(mark.x), y: nan(mark.y), line_width: 2, line_dash: DASHES[mark.stroke] });
    if (mark.kind === "line") {
      const options = { line_width: 2, line_dash: DASHES[mark.stroke] };
      const source = { x: nan(mark.x), y: nan(mark.y) };
      const made = mark.steps ? plot.step({ ...source, mode: "after", ...options }) : plot.line({ ...source, ...options });
      return mark.alone.length ? withDots(plot, mark, made) : made;
    }
    if (mark.kind === "dots") return plot.scatter({ x: nan(mark.x), y: nan(mark.y), ...SHAPES[mark.shape] });
    if (mark.kind === "spans") {
      return plot.segment({ x0: nan(mark.low), x1: nan(mark.high), y0: nan(mark.y), y1: nan(mark.y), line_width: 5, line_alpha: 0.4 });
    }
    if (mark.kind === "band") {
      const box = new Bokeh.BoxAnnotation({ left: mark.low, right: mark.high, fill_alpha: 0.13, line_color: null, level: "underlay" });
      plot.add_layout(box);
      return box;
    }
    if (mark.kind === "heat") {
      const [left, right, bottom, top] = ["left", "right", "bottom", "top"].map((field) => ({ field }));
      const source = new Bokeh.ColumnDataSource({ data: heatCells(mark) });
      return plot.quad({ left, right, bottom, top, source, line_color: null });
    }
    return plot.segment({ x0: nan(mark.x), x1: nan(mark.x), y0: nan(mark.low), y1: nan(mark.high), line_width: 5, line_alpha: 0.4 });
  };

  const paintMark = (mark, renderer) => {
    if (mark.kind === "band") {
      renderer.fill_color = theme().colours[mark.colour];
      return;
    }
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

  const paint = ({ plot, picture, renderers, rule, legendPlace }) => {
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
    for (const swatch of legendPlace.querySelectorAll("[data-colour]")) swatch.style.color = theme().colours[swatch.dataset.colour];
    const key = legendPlace.querySelector(".ramp");
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

  const setTicker = (plot, which, ticker) => {
    plot[`${which}axes`][0].ticker = ticker;
    plot[`${which}grids`][0].ticker = ticker;
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
      setTicker(plot, which, new Bokeh.FixedTicker({ ticks: axis.ticks.map(([at]) => at) }));
      made.major_label_overrides = new Map(axis.ticks);
    } else if (axis.log) {
      setTicker(plot, which, logTicker(plot[`${which}_range`]));
    } else {
      const many = which === "y" ? 6 : narrow ? 4 : 8;
      setTicker(plot, which, new Bokeh.BasicTicker({ desired_num_ticks: many, num_minor_ticks: 0 }));
    }
  };

  // Rows with a name each need the height of a line.
  const heightOf = (picture, narrow) => Math.max(narrow ? 280 : 340, 17 * picture.y.ticks.length + 60);

  const figure = (picture, narrow) => {
    const tools = { zoom: new Bokeh.BoxZoomTool(), pan: new Bokeh.PanTool(), wheel: new Bokeh.WheelZoomTool() };
    const plot = new Bokeh.Plotting.Figure({
      height: heightOf(picture, narrow),
      sizing_mode: "stretch_width",
      x_range: rangeOf(picture, "x"),
      y_range: rangeOf(picture, "y"),
      x_axis_type: picture.x.log ? "log" : "linear",
      y_axis_type: picture.y.log ? "log" : "linear",
      toolbar_location: null,
      min_border_right: 12,
      tools: Object.values(tools),
      // a finger scrolls the page unless the reader picks a tool
      active_drag: coarse ? null : tools.zoom,
      active_scroll: null,
      active_inspect: null,
    });
    plot.setv({ title: null });
    axisOf(plot, "x", picture.x, narrow);
    axisOf(plot, "y", picture.y, narrow);
    const renderers = picture.marks.map((mark) => addMark(plot, mark));
    const rule = new Bokeh.Span({ dimension: "height", location: 0, visible: false, line_dash: [2, 2], level: "overlay" });
    plot.add_layout(rule);
    return { plot, renderers, rule, tools };
  };

  const rescale = ({ plot, picture }) => {
    if (picture.x.log) setTicker(plot, "x", logTicker(plot.x_range));
    if (picture.y.log) setTicker(plot, "y", logTicker(plot.y_range));
  };

  window.bench.drawing = { pictures, theme, figure, paint, rescale, groupOf };
})();
