"use strict";
// What this page shows is put into it as text, and pictures as images: nothing that a user has named becomes markup.

const EVERY = 2000; // milliseconds between two looks, while the page is seen
const byId = (id) => document.getElementById(id);

// The token comes behind the #, which no server is told. It is kept for this tab, and taken out of the address.
function token() {
  if (location.hash.length > 1) {
    sessionStorage.setItem("token", location.hash.slice(1));
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("token") || "";
}

async function ask(what) {
  const answer = await fetch("/api/" + what, { headers: { Authorization: "Bearer " + token() } });
  if (!answer.ok) throw new Error(await answer.text());
  return answer;
}

async function show(image, what, isWanted = () => true) {
  const picture = await (await ask(what)).blob();
  if (!isWanted()) return;
  const address = URL.createObjectURL(picture);
  image.onload = image.onerror = () => URL.revokeObjectURL(address);
  image.src = address;
  image.hidden = false;
}

const pad = (number) => String(number).padStart(2, "0");

function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const days = Math.floor(whole / 86400);
  const clock = [Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60].map(pad).join(":");
  return days ? days + "-" + clock : clock;
}

function amount(bytes) {
  if (bytes === null) return "-";
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (bytes < 1024 || unit === "TiB") return (unit === "B" ? Math.round(bytes) : bytes.toFixed(1)) + " " + unit;
    bytes /= 1024;
  }
}

function stalled(pressure) {
  const worst = Object.entries(pressure).sort((one, other) => other[1] - one[1])[0];
  if (!worst) return "-";
  return worst[1] < 0.5 ? "0" : worst[0] + " " + worst[1].toFixed(0);
}

const STATES = { PENDING: "waits", RUNNING: "runs", SUSPENDED: "suspended", COMPLETING: "ends" };

function cells(row) {
  const waits = row.state === "PENDING";
  const moved = row.read === null || row.written === null ? null : row.read + row.written;
  return [
    [row.key, "key"], [row.name], [row.user], [row.title], [STATES[row.state] || row.state.toLowerCase()],
    [waits ? "-" : duration(row.elapsed), "n"], [row.ntasks, "n"], [row.cpus, "n"],
    [row.cpu === null ? "-" : (100 * row.cpu).toFixed(0), "n"], [amount(row.memory), "n"],
    [stalled(row.pressure), "n"], [amount(moved), "n"], [row.gres || "-"], [waits ? row.reason : row.command],
  ];
}

function fill(table, rows, lines, empty) {
  const body = table.tBodies[0];
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.name : "";
  const made = rows.map((row, at) => {
    const line = document.createElement("tr");
    line.tabIndex = 0;
    line.dataset.name = row.name;
    line.className = row.state === "PENDING" ? "waits" : "";
    for (const [text, kind] of lines[at]) {
      const cell = line.insertCell();
      cell.textContent = text;
      cell.title = String(text).length > 40 ? text : "";
      if (kind) cell.className = kind;
      if (kind === "key") cell.style.background = row.colour;
    }
    line.onclick = () => about(row);
    line.onkeydown = (event) => { if (event.key === "Enter") about(row); };
    return line;
  });
  if (!made.length) {
    const line = document.createElement("tr");
    const cell = line.insertCell();
    cell.colSpan = table.tHead.rows[0].cells.length;
    cell.className = "empty";
    cell.textContent = empty;
    made.push(line);
  }
  body.replaceChildren(...made);
  const again = made.find((line) => focused && line.dataset.name === focused);
  if (again) again.focus();
}

async function look() {
  const view = await (await ask("view")).json();
  byId("node").textContent = view.node || "nodectl";
  document.title = view.node ? "nodectl: " + view.node : "nodectl";
  const waiting = view.rows.filter((row) => row.state === "PENDING").length;
  const clock = new Date(view.at * 1000).toLocaleTimeString();
  byId("counts").textContent = `${clock}: ${view.rows.length - waiting} running, ${waiting} waiting`;
  complain(view.problem);
  byId("figures").replaceChildren(...view.figures.map(([name, text]) => {
    const pair = document.createElement("div");
    pair.append(document.createElement("dt"), document.createElement("dd"));
    pair.firstChild.textContent = name;
    pair.lastChild.textContent = text;
    return pair;
  }));
  fill(byId("rows"), view.rows, view.rows.map(cells), "Nothing runs, nothing waits.");
  await show(byId("machine"), "machine");
}

async function ended() {
  const rows = await (await ask("ended")).json();
  const lines = rows.map((row) => [
    [row.name], [row.user], [row.title], [row.state, row.state === "COMPLETED" ? "" : "failed"],
    [new Date(row.ended * 1000).toLocaleString()], [row.reason],
  ]);
  fill(byId("ended"), rows, lines, "Nothing has ended yet.");
}

let opened = null; // the row that the dialog is about: an answer about another one comes too late

// Each part is asked for by itself: an ended step has a launch and no layout, a job that waits the other way round.
async function about(row) {
  opened = row;
  byId("about-title").textContent = `${row.step === null ? "Job" : "Step"} ${row.name} of ${row.user}: ${row.title}`;
  byId("explanation").textContent = row.reason || "";
  byId("about-problem").textContent = "";
  byId("launch").hidden = true;
  byId("about").showModal();
  try {
    if (row.ended === undefined) {
      const which = row.step === null ? "job=" + encodeURIComponent(row.name) : `job=${row.job}&step=${row.step}`;
      const text = await (await ask("explain?" + which)).text();
      if (opened !== row) return;
      byId("explanation").textContent = text;
    }
    if (row.step !== null) await show(byId("launch"), `launch?job=${row.job}&step=${row.step}`, () => opened === row);
  } catch (error) {
    if (opened === row) byId("about-problem").textContent = error.message;
  }
}

function complain(text) {
  byId("problem").textContent = text;
  byId("problem").hidden = !text;
}

async function again() {
  try {
    if (!document.hidden) await look();
  } catch (error) {
    complain(error.message);
  }
  setTimeout(again, EVERY);
}

const careful = (work) => () => work().catch((error) => complain(error.message));
byId("more").onclick = careful(ended);
byId("report").onclick = careful(() => show(byId("used"), "report"));
token();
again();
careful(ended)();
