// The page at /: builds a form from what each model says that a person enters, asks POST /predict, and shows the answers.
// Nothing comes from another server. What models and users say is only ever set as text, never as HTML.

const MOST = 20;  // files of one drop
const KEPT = 30;  // answers on the page
const $ = id => document.getElementById(id);
let models = [], model, waiting = 0;
let held = {};  // of a model that takes several files: the last of each field

function element(name, attributes = {}, ...children) {
  const one = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in one && key !== "list") one[key] = value; else one.setAttribute(key, value);
  }
  one.append(...children);
  return one;
}

function say(text, bad = false) {
  $("state").textContent = text;
  $("state").className = bad ? "bad" : "";
}

// ---- the form

const READERS = {
  text: one => one.value.trim() ? one.value : null,
  word: one => one.value.trim() || null,
  words: one => one.value.trim() ? one.value.split(",").map(part => part.trim()).filter(Boolean) : null,
  number: one => one.value.trim() ? number(one.value) : null,
  numbers: one => one.value.trim() ? one.value.split(/[\s,]+/).filter(Boolean).map(number) : null,
  flag: one => one.checked,
  json: one => one.value.trim() ? JSON.parse(one.value) : null,
};

function number(text) {
  const value = Number(text);
  if (Number.isNaN(value)) throw new Error(`${text.trim()} is no number`);
  return value;
}

function entry(field, place) {
  const id = `field-${place}`, words = field.name || (field.kind === "text" ? "Text" : "Value");
  if (field.kind === "flag") {
    return element("div", {className: "field"},
      element("label", {className: "flag"}, element("input", {type: "checkbox", id}), words), hint(field));
  }
  const box = element(field.kind === "text" || field.kind === "json" ? "textarea" : "input", {id, spellcheck: false, autocomplete: "off"});
  if (field.kind === "number") box.inputMode = "decimal";
  if (field.kind === "words" || field.kind === "numbers") box.placeholder = "several, with commas between";
  box.addEventListener("keydown", event => {
    if (event.key === "Enter" && (box.tagName === "INPUT" || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      $("form").requestSubmit();
    }
  });
  return element("div", {className: "field"}, element("label", {htmlFor: id}, words), box, hint(field));
}

function hint(field) {
  return element("small", {hidden: !field.meaning}, field.meaning);
}

function entered() {
  const values = {};
  for (const [place, field] of model.form.entries()) {
    const value = READERS[field.kind]($(`field-${place}`));
    if (value === null && field.needed) throw new Error(field.name ? `${field.name} is needed` : "enter something first");
    if (value !== null && (value !== false || field.needed)) values[field.name] = value;
  }
  if (!Object.keys(values).length) throw new Error("enter something first");
  return "" in values ? values[""] : values;
}

function fileField(field) {
  const sound = field.kind === "sound";
  const alone = model.form.length === 1, state = element("p", {className: "hint"}, alone
    ? `Up to ${MOST} at a time; they are sent to this server only.` : field.meaning);
  const take = list => alone ? files(list, sound) : hold(field, list.at(-1), state);
  const input = element("input", {type: "file", id: alone ? "file" : `file-${field.name}`, accept: sound ? "audio/*" : "image/*",
                                  multiple: alone});
  const choose = element("button", {type: "button"}, alone ? (sound ? "Choose recordings" : "Choose images") : `Choose ${field.name}`);
  choose.onclick = () => input.click();
  input.onchange = () => { take([...input.files]); input.value = ""; };
  const buttons = element("div", {className: "buttons"}, choose);
  if (sound) buttons.append(recorder(take, alone ? "record" : `record-${field.name}`));
  const drop = element("div", {className: "drop"},
    element("p", {}, sound ? "Drop a sound file here" : "Drop an image here, or paste one"), input, buttons, state);
  for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, event => { event.preventDefault(); drop.classList.add("over"); });
  for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
  drop.addEventListener("drop", event => { event.preventDefault(); take([...event.dataTransfer.files]); });
  return drop;
}

const isFile = field => field.kind === "image" || field.kind === "sound";

document.addEventListener("paste", event => {
  const [field] = model ? model.form : [];
  if (field && model.form.length === 1 && isFile(field) && event.clipboardData.files.length) files([...event.clipboardData.files], field.kind === "sound");
});

// ---- recording: what the microphone gives, as a WAV file, which every server reads

function recorder(take, id) {
  const button = element("button", {type: "button", className: "plain", id, ariaPressed: "false"}, "Record");
  if (!navigator.mediaDevices) {
    button.disabled = true;
    button.title = "Browsers record only on https or localhost";
  }
  let recording = null;
  button.onclick = async () => {
    if (recording) return recording.stop();
    try {
      const stream = await navigator.mediaDevices.getUserMedia({audio: true});
      const parts = [];
      recording = new MediaRecorder(stream);
      recording.ondataavailable = event => parts.push(event.data);
      recording.onstop = async () => {
        stream.getTracks().forEach(track => track.stop());
        recording = null;
        button.textContent = "Record";
        button.ariaPressed = "false";
        try {
          await take([await wave(new Blob(parts))]);
        } catch (error) {
          say(`The recording cannot be read: ${error.message}`, true);
        }
      };
      recording.start();
      button.textContent = "Stop and ask";
      button.ariaPressed = "true";
      say("Recording ...");
    } catch (error) {
      recording = null;
      say(`No microphone: ${error.message}`, true);
    }
  };
  return button;
}

async function wave(blob) {
  const context = new AudioContext();
  const sound = await context.decodeAudioData(await blob.arrayBuffer());
  await context.close();
  const samples = sound.getChannelData(0), bytes = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const write = (place, text) => [...text].forEach((letter, more) => bytes.setUint8(place + more, letter.charCodeAt(0)));
  write(0, "RIFF"); bytes.setUint32(4, 36 + 2 * samples.length, true); write(8, "WAVEfmt ");
  bytes.setUint32(16, 16, true); bytes.setUint16(20, 1, true); bytes.setUint16(22, 1, true);
  bytes.setUint32(24, sound.sampleRate, true); bytes.setUint32(28, 2 * sound.sampleRate, true);
  bytes.setUint16(32, 2, true); bytes.setUint16(34, 16, true); write(36, "data"); bytes.setUint32(40, 2 * samples.length, true);
  samples.forEach((value, place) => bytes.setInt16(44 + 2 * place, Math.max(-1, Math.min(1, value)) * 32767, true));
  return new File([bytes.buffer], "recording.wav", {type: "audio/wav"});
}

// ---- asking

async function hold(field, file, state) {
  if (!file) return;
  held[field.name] = file;
  state.textContent = file.name;
  if (model.form.some(one => !held[one.name])) return;
  const values = {}, shown = [];
  for (const one of model.form) {
    const chosen = held[one.name], address = URL.createObjectURL(chosen);
    values[one.name] = {b64: await base64(chosen)};
    shown.push(element("div", {}, one.kind === "sound" ? element("audio", {controls: true, src: address})
      : element("img", {src: address, alt: chosen.name}), chosen.name));
  }
  await ask(JSON.stringify({inputs: [values]}), "application/json", shown, true);
}

async function files(list, sound) {
  if (list.length > MOST) say(`Only the first ${MOST} of ${list.length} files are sent.`);
  for (const file of list.slice(0, MOST)) {
    const address = URL.createObjectURL(file);
    const shown = sound ? element("audio", {controls: true, src: address}) : element("img", {src: address, alt: file.name});
    const [field] = model.form;
    if (field.name) {
      await ask(JSON.stringify({inputs: [{[field.name]: {b64: await base64(file)}}]}), "application/json", [shown, file.name], sound);
    } else {
      await ask(file, "application/octet-stream", [shown, file.name], sound);
    }
  }
}

function base64(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
}

function target() {
  const query = new URLSearchParams({model: model.name, version: $("version").value});
  if (model.classes) query.set("top", Math.min(5, model.classes.length));
  return `predict?${query}`;
}

async function ask(body, kind, sent, wide) {
  const began = performance.now();
  waiting += 1;
  say("Asking ...");
  let answer;
  try {
    const reply = await fetch(target(), {method: "POST", body, headers: {"Content-Type": kind}});
    const found = await reply.json();
    answer = reply.ok ? found.answers[0] : {error: found.error};
  } catch (error) {
    answer = {error: `no answer: ${error.message}`};
  }
  waiting -= 1;
  const took = performance.now() - began;
  if (!waiting) say(answer.error ? "" : `Answered in ${took.toFixed(took < 10 ? 1 : 0)} ms.`);
  const card = element("li", {className: "answer"}, element("div", {className: wide ? "sent wide" : "sent"}, ...sent), shownAnswer(answer));
  if (sent[0] instanceof HTMLImageElement) lay(sent[0], answer);
  $("answers").prepend(card);
  for (const old of [...$("answers").children].slice(KEPT)) {
    old.querySelectorAll("img, audio").forEach(one => URL.revokeObjectURL(one.src));
    old.remove();
  }
}

// ---- answers

const TYPES = {picture: "image/png", mask: "image/png", sound: "audio/wav"};  // pipelines/task/form.py
const kind = name => (model.kinds || {})[name] || "";
const made = (value, type) => URL.createObjectURL(new Blob([Uint8Array.from(atob(value.b64), one => one.charCodeAt(0))], {type}));

// Masks and boxes of an answer over the picture that was sent, whose pixels they are of.
async function lay(picture, answer) {
  const named = wanted => Object.entries(answer).filter(([name, value]) => kind(name) === wanted && value);
  const masks = named("mask"), boxes = named("boxes");
  if (!masks.length && !boxes.length) return;
  const over = element("div", {className: "laid"});
  picture.replaceWith(over);
  over.append(picture, ...masks.map(([name, value]) => element("img", {className: "layer", src: made(value, TYPES.mask), alt: name})));
  over.parentElement.classList.add("wide");
  await picture.decode();
  for (const [, list] of boxes) {
    for (const [left, top, right, bottom] of list) {
      const box = element("div", {className: "box"});
      const [wide, high] = [picture.naturalWidth, picture.naturalHeight].map(size => 100 / size);
      Object.assign(box.style, {left: `${left * wide}%`, top: `${top * high}%`, width: `${(right - left) * wide}%`,
        height: `${(bottom - top) * high}%`});
      over.append(box);
    }
  }
}

const figure = value => typeof value !== "number" ? String(value)
  : Number.isInteger(value) ? value.toLocaleString("en") : Math.abs(value) >= 0.001 ? String(+value.toPrecision(4)) : value.toExponential(2);
const percent = value => `${(100 * value).toFixed(1)}%`;
const plain = value => value !== null && typeof value !== "object";

function shownAnswer(answer) {
  const box = element("div", {className: "got"});
  if (answer.error) {
    box.append(element("p", {className: "error"}, answer.error));
    return box;
  }
  const {input, top, warning, ...values} = answer;
  const files = Object.entries(values).filter(([, value]) => value && value.b64 !== undefined);
  const lists = Object.entries(values).filter(([, value]) => Array.isArray(value));
  const single = Object.entries(values).filter(([name, value]) => plain(value) && !(name === "confidence" && top) && value !== "");
  if (single.length && typeof single[0][1] === "string") {
    const [, value] = single.shift();
    box.append(element("p", {className: "first"}, value));
  }
  if (warning) box.append(element("p", {className: "warning"}, warning));
  if (top) {
    box.append(element("ol", {className: "bars"}, ...top.map(one => {
      const share = element("span", {className: "share"});
      share.style.width = percent(one.probability);
      return element("li", {}, share, element("span", {}, one.label), element("span", {}, percent(one.probability)));
    })));
  }
  const columns = lists.filter(([, value]) => value.length && value.every(plain));
  const same = columns.filter(([, value]) => value.length === columns[0][1].length);
  const rows = same.length > 0 && (same.length > 1 || same[0][1].length <= 50);
  if (rows) box.append(table(same));
  if (single.length) {
    box.append(element("dl", {className: "values"}, ...single.flatMap(([name, value]) => [
      element("dt", {title: model.gives[name] || ""}, name.replaceAll("_", " ")), element("dd", {}, figure(value))])));
  }
  for (const [name, value] of files) {
    const type = TYPES[kind(name)], words = name.replaceAll("_", " ");
    if (kind(name) === "sound") box.append(element("audio", {controls: true, src: made(value, type), title: words}));
    if (kind(name) === "picture") box.append(element("img", {src: made(value, type), alt: words}));
    const link = {href: `data:application/octet-stream;base64,${value.b64}`, download: name};
    box.append(element("p", {}, element("a", link, `${words}: ${atob(value.b64).length.toLocaleString("en")} bytes`)));
  }
  const rest = Object.fromEntries(lists.filter(one => !rows || !same.includes(one)));
  if (Object.keys(rest).length) {
    box.append(element("details", {}, element("summary", {}, "all values"), element("pre", {}, JSON.stringify(rest, null, 1))));
  }
  return box;
}

function table(columns) {
  const head = element("tr", {}, ...columns.map(([name]) => element("th", {title: model.gives[name] || ""}, name.replaceAll("_", " "))));
  const rows = columns[0][1].slice(0, 100).map((_, place) => element("tr", {}, ...columns.map(([, values]) =>
    element("td", {className: typeof values[place] === "number" ? "figure" : ""}, figure(values[place])))));
  return element("table", {className: "rows"}, head, ...rows);
}

// ---- models

function choose() {
  model = models.find(one => one.name === $("model").value) || models[0];
  $("version").replaceChildren(...[...model.versions].reverse().map(one => element("option", {value: one}, String(one))));
  $("title").textContent = model.name;
  $("task").textContent = model.run === model.name ? model.task : `${model.task}, ${model.run}`;
  document.title = `Try ${model.name}`;
  $("answers").replaceChildren();
  say("");
  const form = $("form");
  if (model.form.length && model.form.every(isFile)) {
    held = {};
    form.replaceChildren(...model.form.map(fileField));
  } else {
    const button = element("button", {type: "submit", id: "ask"}, "Ask");
    const entries = model.form.map(entry), shown = entries.length > 3 ? 1 : entries.length;
    const more = element("details", {hidden: shown === entries.length}, element("summary", {}, "More"),
      element("div", {className: "more"}, ...entries.slice(shown)));
    form.replaceChildren(...entries.slice(0, shown), more, element("div", {}, button));
  }
  const example = model.form.length === 1 && isFile(model.form[0]) ? "--data-binary @FILE" : "-H 'Content-Type: application/json' -d '{\"inputs\": [...]}'";
  $("call").textContent = `curl ${example} '${new URL(`predict?model=${encodeURIComponent(model.name)}`, location)}'`;
}

$("form").addEventListener("submit", event => {
  event.preventDefault();
  try {
    const sent = entered();
    const shown = typeof sent === "string" ? sent : Object.entries(sent).map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join(", ");
    ask(JSON.stringify({inputs: [sent]}), "application/json", [shown.length > 300 ? `${shown.slice(0, 300)}...` : shown], true);
  } catch (error) {
    say(error.message, true);
  }
});
$("model").addEventListener("change", choose);
for (const name of ["dragover", "drop"]) window.addEventListener(name, event => event.preventDefault());  // a file beside the field opens nothing

try {
  const found = await (await fetch("./", {headers: {Accept: "application/json"}})).json();
  models = found.models;
  $("model").replaceChildren(...models.map(one => element("option", {value: one.name}, one.name)));
  $("choice").hidden = models.length === 1 && models[0].versions.length === 1;
  choose();
} catch (error) {
  say(`The server says nothing of its models: ${error.message}`, true);
}
