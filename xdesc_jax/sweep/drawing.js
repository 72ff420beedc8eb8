// Draws each plot in the page's colours, light or dark, and again when they change.
const resolve = (() => {
  const probe = document.createElement("i");
  return name => {
    document.body.append(probe);
    probe.style.color = name;
    const color = getComputedStyle(probe).color;
    probe.remove();
    return color;
  };
})();

const colored = value => {
  if (typeof value === "string") return /^var\(--[a-z0-9-]+\)$/.test(value) ? resolve(value) : value;
  if (Array.isArray(value)) return value.map(colored);
  if (value && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, colored(inner)]));
  return value;
};

const draw = place => {
  place.spec ??= JSON.parse(place.querySelector("script").textContent);
  const { data, layout } = colored(place.spec);
  const [ink, faint, rule, surface] = ["ink", "faint", "rule", "surface"].map(name => resolve(`var(--${name})`));
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
    displaylogo: false,
    showSendToCloud: false, // nothing leaves the page
    plotlyServerURL: "",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  });
};

for (const place of document.querySelectorAll(".plot")) {
  draw(place);
  // A click on a member's point goes to its row.
  place.on("plotly_click", ({ points: [point] }) => {
    if (typeof point.customdata === "string") location.hash = `member-${point.customdata}`;
  });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  document.querySelectorAll(".plot").forEach(draw);
});

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
