"use strict";
// What this page shows is put into it as text, and pictures as images: nothing that a user has named becomes markup.

const EVERY = 2000; // milliseconds between two looks, while the page is seen
const READABLE = 0.75; // of the size of a picture, at which its letters can still be read
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
  image.onload = image.onerror = () => {
    URL.revokeObjectURL(address);
    image.style.minWidth = READABLE * image.naturalWidth + "px"; // a narrow window scrolls it
  };
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

// As everywhere in nodectl: local time, 24 hours, the date where it is another day.
function moment(seconds) {
  const at = new Date(seconds * 1000);
  const clock = [at.getHours(), at.getMinutes(), at.getSeconds()].map(pad).join(":");
  const today = at.toDateString() === new Date().toDateString();
  return today ? clock : [at.getFullYear(), pad(at.getMonth() + 1), pad(at.getDate())].join("-") + " " + clock;
}

function amount(bytes) {
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
const state = (row) => STATES[row.state] || row.state.toLowerCase();
const waits = (row) => row.state === "PENDING";
const counted = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
const measured = (value, words) => (value === null ? "-" : words(value));

const devices = (row) => row.gres.split(",").join(", "); // the line may break between two

// What a telephone shows in the place of several columns.
function brief(row) {
  const words = [row.user, row.title, counted(row.cpus, "CPU")];
  if (row.cpu !== null) words.push((100 * row.cpu).toFixed(0) + " % busy");
  if (row.memory !== null) words.push(amount(row.memory));
  return [...words, devices(row)].filter((word) => word).join(", ");
}

// A column: its title, the text of a cell, and its classes. "n" is a number, "rest" takes the room that is left and
// wraps. Narrow windows leave out "third", telephones "wide"; a column in which nothing stands is hidden.
const ROWS = [
  ["", (row) => row.key, "key"],
  ["Step", (row) => row.name, "name"],
  ["State", state, "state"],
  ["User", (row) => row.user, "user wide"],
  ["Name", (row) => row.title, "title wide"],
  ["Command or reason", (row) => (waits(row) ? row.reason : [row.reason, row.command].filter((word) => word).join("; ")), "rest"],
  ["Time", (row) => (waits(row) ? "-" : duration(row.elapsed)), "n time"],
  ["CPUs", (row) => row.cpus, "n wide"],
  ["CPU %", (row) => measured(row.cpu, (cpu) => (100 * cpu).toFixed(0)), "n wide"],
  ["Memory", (row) => measured(row.memory, amount), "n wide"],
  ["Devices", (row) => devices(row) || "-", "devices wide"],
  ["Tasks", (row) => row.ntasks, "n third wide"],
  ["Stalled %", (row) => stalled(row.pressure), "n third wide"],
  ["I/O a second", (row) => (row.read === null || row.written === null ? "-" : amount(row.read + row.written)), "n third wide"],
  ["", brief, "brief"],
];
const ENDED = [
  ["Step", (row) => row.name, "name"],
  ["State", (row) => row.state, "state"],
  ["User", (row) => row.user, "user wide"],
  ["Name", (row) => row.title, "title wide"],
  ["Reason", (row) => row.reason, "rest"],
  ["Ended", (row) => moment(row.ended), "n time"],
  ["", (row) => [row.user, row.title].filter((word) => word).join(", "), "brief"],
];

function fill(table, columns, rows, empty) {
  const texts = rows.map((row) => columns.map(([, text]) => String(text(row))));
  const shown = columns.map((_, at) => !texts.length || texts.some((line) => line[at] !== "-" && line[at] !== ""));
  const kind = (at) => columns[at][2] + (shown[at] ? "" : " empty-column");
  const head = document.createElement("tr");
  columns.forEach(([title], at) => {
    const cell = head.appendChild(document.createElement("th"));
    cell.textContent = title;
    cell.className = kind(at);
  });
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.name : "";
  const made = rows.map((row, number) => {
    const line = document.createElement("tr");
    line.tabIndex = 0;
    line.dataset.name = row.name;
    line.className = waits(row) ? "waits" : row.ended !== undefined && row.state !== "COMPLETED" ? "failed" : "";
    texts[number].forEach((text, at) => {
      const cell = line.insertCell();
      cell.textContent = text;
      cell.title = text.length > 40 ? text : "";
      cell.className = kind(at);
      if (columns[at][2] === "key") cell.style.background = row.colour;
    });
    line.onclick = () => about(row);
    line.onkeydown = (event) => { if (event.key === "Enter") about(row); };
    return line;
  });
  if (!made.length) {
    const line = document.createElement("tr");
    const cell = line.insertCell();
    cell.colSpan = columns.length;
    cell.className = "empty";
    cell.textContent = empty;
    made.push(line);
  }
  table.createTHead().replaceChildren(head);
  (table.tBodies[0] || table.createTBody()).replaceChildren(...made);
  const again = made.find((line) => focused && line.dataset.name === focused);
  if (again) again.focus();
}

let before = null; // the names of the lines of the last look: when one is gone, something has ended

async function look() {
  const view = await (await ask("view")).json();
  byId("node").textContent = view.node || "nodectl";
  document.title = view.node ? "nodectl: " + view.node : "nodectl";
  byId("counts").textContent = `${moment(view.at)}: ${counted(view.running, "job")} running, ${view.waiting} waiting`;
  byId("away").textContent = view.away && "No jobs start. " + view.away;
  byId("away").hidden = !view.away;
  complain(view.problem);
  byId("figures").replaceChildren(...view.figures.map(([name, text]) => {
    const pair = document.createElement("div");
    pair.append(document.createElement("dt"), document.createElement("dd"));
    pair.firstChild.textContent = name;
    pair.lastChild.textContent = text;
    return pair;
  }));
  fill(byId("rows"), ROWS, view.rows, "Nothing runs, nothing waits: `nodectl run hostname` starts a step, `nodectl submit job.sh` queues a job.");
  byId("hint").hidden = !view.rows.length;
  const names = new Set(view.rows.map((row) => row.name));
  if (!before || [...before].some((name) => !names.has(name))) await ended();
  before = names;
  await show(byId("machine"), "machine");
}

async function ended() {
  fill(byId("ended"), ENDED, await (await ask("ended")).json(), "Nothing has ended yet.");
}

let opened = null; // the row that the dialog is about: an answer about another one comes too late

// Each part is asked for by itself: an ended step has a launch and no layout, a job that waits the other way round.
async function about(row) {
  opened = row;
  const what = `${row.step === null ? "Job" : "Step"} ${row.name} of ${row.user}`;
  byId("about-title").textContent = row.title ? `${what}: ${row.title}` : what;
  byId("explanation").textContent = row.reason || "";
  byId("about-problem").textContent = "";
  byId("launch").hidden = byId("written").hidden = true;
  byId("about").showModal();
  const part = async (work) => {
    try {
      await work();
    } catch (error) {
      if (opened === row) byId("about-problem").textContent += error.message + "\n";
    }
  };
  const text = async (question, place) => {
    const answer = await (await ask(question)).text();
    if (opened === row) byId(place).textContent = answer;
  };
  if (row.ended === undefined) {
    const which = row.step === null ? "job=" + encodeURIComponent(row.name) : `job=${row.job}&step=${row.step}`;
    await part(() => text("explain?" + which, "explanation"));
  }
  if (row.step === null) return;
  await part(async () => {
    const written = await (await ask(`output?job=${row.job}&step=${row.step}`)).text();
    if (opened !== row) return;
    byId("output").textContent = written;
    byId("written").hidden = !written; // most further steps of a job have no file of their own
  });
  await part(() => show(byId("launch"), `launch?job=${row.job}&step=${row.step}`, () => opened === row));
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
byId("report").onclick = careful(() => show(byId("used"), "report"));
token();
again();
