// A click on a column's head sorts the rows; a second click reverses them. Numbers start with the largest.
for (const head of document.querySelectorAll("table.list thead th")) {
  const sort = () => {
    const column = head.cellIndex, body = head.closest("table").tBodies[0];
    const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const numeric = [...body.rows].every(row => "value" in row.cells[column].dataset);
    const before = head.getAttribute("aria-sort");
    const down = before ? before === "ascending" : numeric;
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const order = numeric ? (a, b) => key(a) - key(b) : (a, b) => key(a).localeCompare(key(b));
    body.append(...[...body.rows].sort((a, b) => down ? order(b, a) : order(a, b)));
  };
  head.tabIndex = 0;
  head.addEventListener("click", sort);
  head.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
}
