"use strict";
(() => {
  const PRINT_WIDTH_PX = 640;
  const documentData = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const themed = (layout, printing) => {
    const ink = printing ? "#000" : css("--ink");
    const line = printing ? "#bbb" : css("--line");
    const paper = printing ? "#fff" : css("--paper");
    const axis = { color: ink, gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
    const result = { ...layout, paper_bgcolor: paper, plot_bgcolor: paper, font: { ...(layout.font || {}), color: ink, family: "inherit" } };
    for (const key of Object.keys(layout)) if (/^[xy]axis\d*$/.test(key)) result[key] = { ...axis, ...layout[key] };
    result.hoverlabel = { bgcolor: paper, bordercolor: line, font: { color: ink } };
    if (layout.annotations) result.annotations = layout.annotations.map((note) => ({ ...note, font: { ...(note.font || {}), color: ink } }));
    return result;
  };
  const config = { displaylogo: false, responsive: true, displayModeBar: "hover", modeBarButtonsToRemove: ["lasso2d", "select2d"] };

  const draw = (printing) => Promise.all(documentData.map((figure) => {
    const element = document.getElementById(`plot-${figure.id}`);
    const layout = themed(figure.layout, printing);
    layout.height = figure.height;
    if (printing) layout.width = PRINT_WIDTH_PX; else { layout.autosize = true; delete layout.width; }
    if (!printing && element.clientWidth < 560) {
      layout.legend = { ...(layout.legend || {}), orientation: "h", x: 0, y: -0.25 };
      layout.margin = { ...(layout.margin || {}), l: 48, r: 8 };
    }
    return Plotly.react(element, figure.traces, layout, { ...config, responsive: !printing });
  })).then(() => { document.documentElement.dataset.drawn = printing ? "print" : "screen"; });

  const field = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const cellValue = (cell) => (cell.dataset.value !== undefined ? cell.dataset.value : cell.textContent.trim());
  const csvOf = (table) => [...table.rows].map((row) => [...row.cells].map((cell) => field(cellValue(cell))).join(",")).join("\r\n") + "\r\n";
  const tsvOf = (table) => [...table.rows].map((row) => [...row.cells].map(cellValue).join("\t")).join("\n");

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-table]");
    if (!button) return;
    const table = document.getElementById(`table-${button.dataset.table}`);
    if (button.dataset.action === "csv") {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob(["\ufeff", csvOf(table)], { type: "text/csv;charset=utf-8" }));
      link.download = `${button.dataset.table}.csv`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
      return;
    }
    const text = tsvOf(table);
    const done = () => { const before = button.textContent; button.textContent = button.dataset.done; setTimeout(() => { button.textContent = before; }, 1500); };
    if (navigator.clipboard && window.isSecureContext) { navigator.clipboard.writeText(text).then(done); return; }
    const area = document.createElement("textarea");
    area.value = text; area.style.position = "fixed"; area.style.opacity = "0";
    document.body.append(area); area.select(); document.execCommand("copy"); area.remove(); done();
  });

  dark.addEventListener("change", () => draw(false));
  window.addEventListener("beforeprint", () => draw(true));
  window.addEventListener("afterprint", () => draw(false));
  draw(window.matchMedia("print").matches);
})();
