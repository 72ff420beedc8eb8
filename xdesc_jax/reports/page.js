// A heading's button sorts the rows, by mouse or keys; once more reverses them. Figures start with the largest, and
// rows without one stay last.
for (const button of document.querySelectorAll("table.list thead button")) {
  const head = button.closest("th");
  button.addEventListener("click", () => {
    const column = head.cellIndex, body = head.closest("table").tBodies[0];
    const figures = !head.classList.contains("text");
    const before = head.getAttribute("aria-sort");
    const down = before === "none" ? figures : before === "ascending";
    for (const other of head.parentNode.cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => figures ? row.cells[column].dataset.value : row.cells[column].textContent.trim();
    const order = figures ? (a, b) => a - b : (a, b) => a.localeCompare(b, undefined, { numeric: true });
    const keyed = [...body.rows].map(row => [key(row), row]);
    const known = keyed.filter(([k]) => k !== "").sort(([a], [b]) => down ? order(b, a) : order(a, b));
    body.append(...known.concat(keyed.filter(([k]) => k === "")).map(([, row]) => row));
  });
}

// What is wider than the page says so by a shadow, and scrolls by keys.
for (const frame of document.querySelectorAll(".frame")) {
  const scroll = frame.querySelector(".scroll"), first = frame.querySelector("thead th:first-child");
  const mark = () => {
    const more = scroll.scrollWidth - scroll.clientWidth;
    const wide = more > 1;
    frame.classList.toggle("wide", wide);
    frame.classList.toggle("before", wide && scroll.scrollLeft > 1);
    frame.classList.toggle("behind", wide && scroll.scrollLeft < more - 1);
    frame.style.setProperty("--stuck", `${first ? first.offsetWidth : 0}px`);
    if (wide || scroll.scrollHeight > scroll.clientHeight + 1) {
      scroll.tabIndex = 0;
      scroll.setAttribute("role", "region");
      scroll.setAttribute("aria-label", frame.querySelector("caption")?.textContent ?? "Table, scrolls");
    } else scroll.removeAttribute("tabindex");
  };
  scroll.addEventListener("scroll", mark, { passive: true });
  new ResizeObserver(mark).observe(scroll);
  mark();
}

// Rows that hold each of the words; how many those are.
for (const input of document.querySelectorAll(".find input")) {
  const rows = [...document.getElementById(input.dataset.rows).querySelectorAll("tbody tr")];
  const count = input.closest(".find").querySelector("output");
  const find = () => {
    const words = input.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
    count.textContent = `${rows.filter(row => !row.hidden).length} of ${rows.length}`;
  };
  input.addEventListener("input", find);
  find();
}

// Each plot in the page's colours, light or dark, and again when they change.
const probe = document.createElement("i");
const resolved = name => {
  document.body.append(probe);
  probe.style.color = name;
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
};

const colored = value => {
  if (typeof value === "string") return /^var\(--[a-z0-9-]+\)$/.test(value) ? resolved(value) : value;
  if (Array.isArray(value)) return value.map(colored);
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, colored(inner)]));
  return value;
};

const draw = place => {
  place.spec ??= JSON.parse(place.querySelector("script").textContent);
  const { data, layout } = colored(place.spec);
  const [ink, faint, rule, surface] = ["ink", "faint", "rule", "surface"].map(name => resolved(`var(--${name})`));
  const axis = { gridcolor: rule, linecolor: rule, zerolinecolor: rule, automargin: true };
  const clear = "rgba(0,0,0,0)";
  Plotly.react(place, data, {
    ...layout,
    paper_bgcolor: clear,
    plot_bgcolor: clear,
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: ink },
    hoverlabel: { bgcolor: surface, bordercolor: rule, font: { color: ink }, align: "left" },
    modebar: { bgcolor: clear, color: faint, activecolor: ink },
    hovermode: "closest",
    xaxis: { ...axis, ...layout.xaxis },
    yaxis: { ...axis, ...layout.yaxis },
  }, {
    responsive: true,
    displayModeBar: matchMedia("(hover: none)").matches ? false : "hover",
    displaylogo: false,
    showSendToCloud: false, // nothing leaves the page
    plotlyServerURL: "",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  });
};

const plots = typeof Plotly === "undefined" ? [] : document.querySelectorAll(".plot");
for (const place of plots) {
  draw(place);
  // A click on a point that names a row goes there.
  place.on("plotly_click", ({ points: [point] }) => {
    if (typeof point.customdata === "string") location.hash = `member-${point.customdata}`;
  });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach(draw));
