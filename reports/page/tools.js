// The tools of a picture, as buttons of our own: Bokeh's toolbar took more than a third of the time that drawing a picture takes.
(() => {
  "use strict";
  const { element } = window.bench.values;

  const button = (text, title, act) => {
    const made = element("button", "", text);
    made.type = "button";
    made.title = title;
    made.addEventListener("click", act);
    return made;
  };

  const save = async ({ view }, name) => {
    const link = element("a");
    link.href = URL.createObjectURL(await view.export("png").to_blob());
    link.download = `${name}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  };

  // Of the tools that a drag moves, Bokeh keeps one active at a time; none is active on a phone until it is picked.
  const toolButtons = (made, name) => {
    const { plot, tools, toolPlace } = made;
    const toggles = [
      ["Zoom", tools.zoom, "A drag zooms to a box"],
      ["Pan", tools.pan, "A drag moves what is seen"],
      ["Wheel", tools.wheel, "The wheel, or two fingers, zoom"],
    ].map(([text, tool, title]) => [button(text, title, () => (tool.active = !tool.active)), tool]);
    const show = () => toggles.forEach(([one, tool]) => one.setAttribute("aria-pressed", String(tool.active)));
    plot.toolbar.active_changed.connect(show);
    show();
    toolPlace.prepend(
      ...toggles.map(([one]) => one),
      button("Reset", "Shows all, as a double click does", () => plot.reset.emit()),
      button("PNG", "Saves the picture", () => save(made, name)),
    );
  };

  window.bench.tools = { toolButtons };
})();
