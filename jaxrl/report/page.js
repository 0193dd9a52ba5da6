"use strict";
(() => {
  const element = (id) => document.getElementById(id);
  const data = JSON.parse(element("report").textContent), tasks = Object.keys(data.tasks ?? {});
  const linked = tasks.find((name) => location.hash === `#${encodeURIComponent(name)}`), task = linked ?? tasks[0];
  const report = tasks.length ? data.tasks[task] : data;
  const { lines, runs, metrics, percent } = report;
  const several = Boolean(metrics[report.first].tasks);  // a report over several tasks
  const shown = new Set(report.shown);
  const INK = "#000000";  // the only colour that follows the theme of the page
  const colourOf = (line) => lines[line].colour === INK ? "var(--ink)" : lines[line].colour;
  const metric = () => metrics[element("metric").value];
  const estimate = () => element("estimate").value;
  const words = (name) => name.replace(/_/g, " ");
  const say = (text) => { element("said").textContent = text; };
  const settings = (count) => `${count.toLocaleString("en")} ${count === 1 ? "setting" : "settings"}`;

  function save(name, kind, text) {
    const link = make("a", { download: name, href: URL.createObjectURL(new Blob([text], { type: kind })) });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  function sample(line) {
    return draw("svg", { width: 30, height: 12, "aria-hidden": "true", style: `color:${colourOf(line)}` }, [
      draw("line", { x1: 1, x2: 29, y1: 6, y2: 6, stroke: "currentColor",
        "stroke-width": lines[line].width + 1, "stroke-dasharray": lines[line].dash })]);
  }

  const series = (of) => () => [...lines.keys()].filter((line) => shown.has(line)).map((line) => {
    const found = of(line);
    const { label, dash, width } = lines[line];
    return found && { line, label, colour: colourOf(line), dash, width, ...found };
  }).filter(Boolean);

  const logX = () => element("x-scale").value === "log", logY = () => element("y-scale").value === "log";
  const estimateText = () => estimate() === "iqm" ? "interquartile mean" : "mean";
  const curves = new Chart(element("curves"), {
    series: series((line) => {
      const [y, low, high] = metric().curves[estimate()][line];
      return { x: report.steps[lines[line].run], y, low, high };
    }),
    xLabel: () => report.unit, yLabel: () => metric().text, xUnit: () => report.unit, logX, logY,
    name: () => `${metric().text} against ${report.unit}: ${estimateText()} of ${settings(shown.size)}`,
    empty: () => shown.size ? "No value is above 0, as a logarithmic axis needs." : "Every setting is hidden.",
    zoomed: (is) => { element("reset").disabled = !is; }, said: say,
  });
  const better = (direction) => direction < 0 ? "at or below" : "above";
  const profile = new Chart(element("profile"), {
    series: series((line) => {
      const { tau, lines: shares } = metric().profile;
      return shares[line] && { x: tau, y: shares[line][0], low: shares[line][1], high: shares[line][2] };
    }),
    xLabel: () => `threshold (${metric().text})`, yLabel: () => `share of runs ${better(metric().direction)} it`,
    xUnit: () => "is the threshold",
    logX: () => false, logY: () => false, yRange: [-0.02, 1.02],
    name: () => `Share of runs ${better(metric().direction)} each ${metric().text}, of ${settings(shown.size)}`,
    empty: () => shown.size ? "No run has a finite final value." : "Every setting is hidden.",
    zoomed: () => {}, said: say,
  });

  function legend() {
    element("legend").replaceChildren(...lines.map(({ label }, line) => {
      const key = make("button", { type: "button", class: "key", "data-key": line }, [sample(line), label]);
      key.addEventListener("click", () => {
        if (!shown.delete(line)) shown.add(line);
        refresh();
        say(`${label} is ${shown.has(line) ? "shown" : "hidden"}`);
      });
      return key;
    }));
    const set = (which) => () => {
      shown.clear();
      for (const line of which()) shown.add(line);
      refresh();
    };
    element("all").addEventListener("click", set(() => lines.keys()));
    element("none").addEventListener("click", set(() => []));
    element("best").addEventListener("click", set(() => ranked().slice(0, 8)));
    element("best").hidden = lines.length <= 8 || several;
  }

  function ranked() {
    const { numbers, direction } = metric(), column = estimate() === "iqm" ? 0 : 3;
    const worth = (line) => numbers[line][column] === null ? -Infinity : (direction || 1) * numbers[line][column];
    return [...lines.keys()].sort((a, b) => worth(b) - worth(a));
  }

  let order = null;  // [column, sign] of the table, null for the settings' own
  const columns = () => {
    const { direction, numbers, optima, better: wins } = metric(), base = wins[element("baseline").value];
    const found = [
      { name: "Setting", text: (line) => lines[line].label, value: (line) => lines[line].label },
      { name: "IQM", cell: 0, value: (line) => numbers[line][0] },
      { name: `${percent} interval`, cell: 1, value: (line) => numbers[line][1] },
      { name: "Mean", cell: 2, value: (line) => numbers[line][3] },
      { name: `${percent} interval`, cell: 3, value: (line) => numbers[line][4] },
    ];
    if (direction && base) {
      found.push({ name: "P(better)", value: (line) => base[line] && base[line][0], text: (line) => {
        if (String(line) === element("baseline").value) return "baseline";
        if (!base[line]) return "–";
        const [chance, low, high] = base[line].map((value) => value === null ? null : value.toFixed(3));
        const how = metric().paired[element("baseline").value][line] ? "paired" : "unpaired";
        const over = several ? `, tasks: ${metric().common[element("baseline").value][line]}` : "";
        return (low === null ? `${chance} ${how}` : `${chance} [${low}, ${high}] ${how}`) + over;
      } });
    }
    if (optima) {
      const digits = (value, count) => value === null ? "–" : String(Number(value.toPrecision(count)));
      const share = (value) => value === null ? "" : ` (${value.toFixed(2)} %)`;
      const most = (line) => optima[line][3] === null ? "–" : `≤ ${digits(optima[line][3], 5)}`;
      found.push({ name: "Optimum", value: (line) => optima[line][0] ?? optima[line][3],
                   text: (line) => optima[line][0] === null ? most(line) : digits(optima[line][0], 5) });
      found.push({ name: "Gap", value: (line) => optima[line][1],
                   text: (line) => digits(optima[line][1], 3) + share(optima[line][2]) });
    }
    if (several) found.push({ name: "Tasks", value: (line) => metric().tasks[line] });
    found.push({ name: several ? "Seeds per task" : "Seeds", value: (line) => numbers[line][6] });
    if (numbers.some((row) => row[7] > 0)) found.push({ name: "Failed", value: (line) => numbers[line][7] });
    return found.map((column) => ({
      text: (line) => column.cell === undefined ? String(column.value(line)) : metric().cells[line][column.cell],
      ...column,
    }));
  };

  function rows() {
    const kept = [...lines.keys()];
    const column = order && columns()[order[0]];
    if (!column) return kept;
    const worth = (line) => {
      const value = column.value(line);
      return value === null ? -Infinity : value;
    };
    const compare = (a, b) => typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
    return kept.sort((a, b) => order[1] * compare(worth(a), worth(b)));
  }

  function table() {
    const { direction, text, note, optima } = metric(), shownColumns = columns();
    const head = shownColumns.map(({ name }, index) => {
      const button = make("button", { type: "button" }, [name]);
      const sign = order && order[0] === index ? order[1] : 0;
      button.addEventListener("click", () => {
        order = sign < 0 ? [index, 1] : sign > 0 ? null : [index, index ? -1 : 1];
        table();
        element("table").querySelectorAll("thead button")[index].focus();
      });
      return make("th", { scope: "col", class: index ? "number" : "",
        "aria-sort": sign ? (sign > 0 ? "ascending" : "descending") : "none" }, [button]);
    });
    const body = rows().map((line) => make("tr", { "data-row": line }, shownColumns.map((column, index) => {
      if (index) return make("td", { class: "number" }, [column.text(line)]);
      const swatch = sample(line);
      swatch.setAttribute("class", "swatch");
      return make("th", { scope: "row" }, [swatch, column.text(line)]);
    })));
    element("table").replaceChildren(make("thead", {}, [make("tr", {}, head)]), make("tbody", {}, body));
    const last = [...new Set(report.steps.map((steps) => steps[steps.length - 1].toLocaleString("en")))].join(" or ");
    const base = lines[element("baseline").value].label, where = direction > 0 ? "higher" : "lower";
    const against = !direction || lines.length < 2 ? ""
      : ` P(better) is the probability that a run of the setting ends ${where} than a run of “${base}”, ties counting ` +
        "one half; 0.5 is no difference. It is paired, run by run of equal seeds, where both trained one algorithm and " +
        "configuration on one environment from the same seeds, and else of every run with every other." +
        (several ? " It is the mean over the tasks of both settings, whose number comes last." : "");
    element("table-help").textContent = `${text} after ${last} ${report.unit}. ` +
      `IQM is the interquartile mean of ${several ? "the runs of its tasks" : "the seeds"}, with its ${percent} ` +
      "bootstrap interval; the mean has its Student t interval. Failed runs are excluded" +
      (several ? " and counted over all tasks; every task has as many runs as the one with the fewest." : ".") +
      (optima ? " The optimum is the best attainable value; a number after ≤ is an upper bound on it. The gap is the " +
        "optimum less the IQM." : "") +
      `${against}${note ? ` ${note}` : ""}`;
  }

  function matrix() {
    const { better: wins, paired, common } = metric(), bases = [...lines.keys()].filter((line) => shown.has(line));
    const whole = bases.length > 2 && bases.every((line) => wins[line]);
    element("matrix-section").hidden = !whole;
    if (!whole) return;
    element("matrix-help").textContent = "Probability that a run of the row is better than a run of the column at the " +
      `end, ties counting one half, with its ${percent} interval` +
      (several ? ", as a mean over the tasks of both, whose number comes last" : "") +
      ". The legend above selects the settings shown.";
    const cell = (line, base) => {
      const found = line === base ? null : wins[base][line];
      if (!found) return make("td", {}, ["–"]);
      const [chance, low, high] = found.map((value) => value === null ? null : value.toFixed(2));
      const tint = `background:color-mix(in srgb, var(--accent) ${Math.round(45 * found[0])}%, transparent)`;
      const title = `${lines[line].label} against ${lines[base].label}, ${paired[base][line] ? "paired" : "unpaired"}`;
      const over = several ? `, ${common[base][line]}` : "";
      return make("td", { style: tint, title }, [(low === null ? chance : `${chance} [${low}, ${high}]`) + over]);
    };
    element("matrix").replaceChildren(
      make("thead", {}, [make("tr", {}, [make("th", { scope: "col" }, [""]),
        ...bases.map((base) => make("th", { scope: "col" }, [`than ${lines[base].label}`]))])]),
      make("tbody", {}, bases.map((line) => make("tr", {},
        [make("th", { scope: "row" }, [lines[line].label]), ...bases.map((base) => cell(line, base))]))));
  }

  function csv() {
    const quoted = (value) => {
      const text = String(value ?? "");
      return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
    };
    const base = metric().better[element("baseline").value], optima = metric().optima;
    const common = several ? metric().common[element("baseline").value] : [];
    const head = ["setting", "iqm", "iqm_low", "iqm_high", "mean", "mean_low", "mean_high", "seeds", "failed",
                  ...(optima ? ["optimum", "gap", "gap_percent", "bound"] : []),
                  ...(base ? ["p_better", "p_better_low", "p_better_high"] : []),
                  ...(several ? ["tasks", ...(base ? ["p_better_tasks"] : [])] : [])];
    const body = [...lines.keys()].map((line) =>
      [lines[line].cell, ...metric().numbers[line], ...(optima ? optima[line] : []),
       ...(base ? base[line] || ["", "", ""] : []),
       ...(several ? [metric().tasks[line], ...(base ? [common[line]] : [])] : [])]);
    return [head, ...body].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
  }

  function importance() {
    const found = metric().importance.filter(Boolean);
    element("importance-section").hidden = !report.swept;
    if (!found.length) {
      element("importance").replaceChildren(make("p", { class: "soft" },
        ["There is no estimate for this metric: all settings have equal means, there are too few of them, or they " +
          "are the trials of a search, which have the return alone."]));
      return;
    }
    const heading = (text, kind = "") => make("th", { scope: "col", class: kind }, [text]);
    const row = ([name, share]) => make("tr", {}, [
      make("th", { scope: "row" }, [name]),
      make("td", { class: "number" }, [share === null ? "–" : `${(100 * share).toFixed(1)} %`]),
      make("td", {}, share === null ? [] : [
        make("span", { class: "meter" }, [make("span", { style: `width:${Math.min(100, 100 * share)}%` })])]),
    ]);
    element("importance").replaceChildren(...found.flatMap((one) => {
      const together = one.pairs.slice(0, 10).map(([pair, share]) => [`${pair}, together`, share]);
      const seeds = one.noise === null ? [] : [["expected from the seeds alone", one.noise]];
      const head = [heading("Hyper-parameter"), heading("Share", "number"), heading("of the variance")];
      const into = make("table", {}, [make("thead", {}, [make("tr", {}, head)]),
        make("tbody", {}, [...one.shares, ...together, ...seeds].map(row))]);
      return [...(report.swept > 1 ? [make("h3", {}, [one.run])] : []),
        make("div", { class: "wide" }, [into]), make("p", { class: "soft" }, [method(one)])];
    }));
  }

  function method({ method: name, settings: count, left_out: left }) {
    if (name === "anova") {
      return `Functional analysis of variance on the grid of ${settings(count)}: the variance of the means over ` +
        "everything else, as a share of the variance between the settings' means; “together” is the interaction of " +
        "two. It holds for the values of this grid: wider ranges would give other shares.";
    }
    const failed = left ? `, ${left} of them with failed runs only` : "";
    return `For ${settings(count)}${failed}: for numbers the squared rank correlation with the settings' means, for ` +
      "other values the share of variance between them (epsilon squared). It ignores interactions, " +
      "and for numbers detects monotonic effects only; shares need not add up to 100 %.";
  }

  function grid(target, head, body) {
    target.replaceChildren(
      make("thead", {}, [make("tr", {}, head.map((text) => make("th", { scope: "col" }, [text])))]),
      make("tbody", {}, body.map(([name, ...cells]) => make("tr", {},
        [make("th", { scope: "row" }, [name]), ...cells.map((cell) => make("td", {}, [cell]))]))));
  }

  function once() {
    if (several) element("differences-title").textContent = "Runs by task";
    element("notes").replaceChildren(...report.notes.map((text) => make("p", { class: "note" }, [text])));
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.facts)))];
    grid(element("runs"), ["", ...runs.map((run) => run.name)],
      names.map((name) => [name, ...runs.map((run) => run.facts[name] ?? "–")]));
    const different = Object.entries(report.differences), target = element("differences");
    if (different.length) {
      const into = make("table");
      grid(into, ["", ...runs.map((run) => run.name)], different.map(([path, values]) => [path, ...values]));
      target.replaceChildren(into);
    } else {
      const text = runs.length > 1 ? "Nothing: the runs have equal configurations." : "There is one run.";
      target.replaceChildren(make("p", { class: "soft" }, [text]));
    }
    failures();
    element("again").replaceChildren(...runs.map((run, index) => {
      const button = make("button", { type: "button", "data-config": index }, ["Download config.json"]);
      const text = JSON.stringify(run.config, null, 2) + "\n";
      const name = `${run.name.replace(/[^\w.-]+/g, "-")}-config.json`;
      button.addEventListener("click", () => save(name, "application/json", text));
      const inside = [make("summary", {}, [run.name]), make("p", { class: "soft" }, [run.again])];
      if (run.code) inside.push(make("pre", {}, [run.code]));
      const whole = make("details", {}, [make("summary", {}, ["Its configuration"]), make("pre", {}, [text])]);
      return make("details", {}, [...inside, make("div", { class: "row" }, [button]), whole]);
    }), make("h3", {}, ["To cite"]), make("pre", {}, [report.cite]));
    element("made").textContent = report.made;
    const many = report.left_out
      ? ` The ${lines.length} best settings are in this report, ${report.left_out} others are not.` : "";
    const alike = lines.length > report.looks
      ? ` Only ${report.looks} lines have distinct styles: show fewer at a time.` : "";
    const over = several ? "the runs of the setting's tasks" : "seeds";
    element("curves-help").textContent = `Lines are the estimate over ${over}, bands its ${percent} interval. ` +
      "Press a setting above to hide or show it. Drag to zoom (double-click for all); with the keyboard, the arrow " +
      `keys read values, + and - zoom and 0 shows all.${many}${alike}`;
  }

  function failures() {
    const { listed, total, runs: number, unit = report.unit } = report.failures, target = element("failures");
    const all = `${number.toLocaleString("en")} runs`;
    if (!total) {
      target.replaceChildren(make("p", {}, [`None: every metric of all ${all} is finite.`]));
      return;
    }
    const into = make("table"), when = ({ since, at_the_end: stays }) =>
      `${since.toLocaleString("en")} ${unit}${stays ? "" : ", for a time"}`;
    grid(into, ["Setting", "Seed", "Since", "Metrics that are not finite"],
      listed.map((one) => [one.line, String(one.seed), when(one), one.metrics.join(", ")]));
    const more = total > listed.length ? ` The first ${listed.length.toLocaleString("en")} are listed.` : "";
    const text = `${total.toLocaleString("en")} of ${all} have metrics that are not finite: a run with such a metric at ` +
      `the end is excluded from the final values, otherwise from those points of the curves.${more}`;
    target.replaceChildren(make("p", {}, [text]), make("div", { class: "wide" }, [into]));
  }

  const options = (id, names, chosen) => element(id).replaceChildren(...names.map(([value, text]) => {
    const option = make("option", { value }, [text]);
    option.selected = String(value) === String(chosen);
    return option;
  }));

  function refresh() {
    for (const key of element("legend").children) {
      key.setAttribute("aria-pressed", String(shown.has(Number(key.dataset.key))));
    }
    const { direction, better: wins } = metric();
    element("direction").textContent = direction > 0 ? "higher is better" : direction < 0 ? "lower is better" : "";
    const bases = Object.keys(wins).map(Number), chosen = element("baseline").value || report.baseline;
    element("baseline").parentElement.hidden = !bases.length;
    if (bases.length) options("baseline", bases.map((line) => [line, lines[line].label]), chosen);
    for (const chart of [curves, profile]) chart.leave();
    curves.draw();
    profile.draw();
    table();
    matrix();
    importance();
    element("profile-help").textContent = "Of each setting, the share of its runs whose final value is " +
      `${better(direction)} a threshold, with pointwise ${percent} intervals. ` +
      `${direction ? `${several ? "Of two settings with the same tasks, a" : "A"} line that is above another ` +
        "everywhere belongs to the better setting. " : ""}` +
      "The legend above selects the settings shown.";
  }

  if (tasks.length) {
    options("task", tasks.map((name) => [name, name]), task);
    element("task").parentElement.hidden = false;
    element("task").addEventListener("change", () => { location.hash = encodeURIComponent(element("task").value); });
    addEventListener("hashchange", () => location.reload());
    if (location.hash && !linked) say(`There is no task ${location.hash.slice(1)}: this is ${task}`);
  }
  options("metric", Object.entries(metrics).map(([name]) => [name, words(name)]), report.first);
  element("estimate").value = report.estimate;
  options("baseline", [[report.baseline, ""]], report.baseline);
  legend();
  once();
  for (const id of ["estimate", "baseline"]) element(id).addEventListener("change", refresh);
  for (const [id, both] of [["metric", true], ["y-scale", false], ["x-scale", false]]) {
    element(id).addEventListener("change", () => {
      curves.view = null;
      if (both) profile.view = null;
      refresh();
    });
  }
  element("reset").addEventListener("click", () => curves.reset());
  element("download-table").addEventListener("click", () => {
    const name = [task, element("metric").value].filter(Boolean).join("-").replace(/[^\w.-]+/g, "-");
    save(`${name}.csv`, "text/csv", csv());
  });
  refresh();
})();
