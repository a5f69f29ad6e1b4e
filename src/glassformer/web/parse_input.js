// What a person typed, as each task reads it: tasks/*.py in the browser's language, with the same
// messages. `model.task.reading` says which of them, with its numbers; a test compares both.
//
// A task that brings a reading of its own in Python is not known here: then the page reads the
// tokens' words, and the texts of its examples.

import { cut, quoted, spaces, split, strip } from "./vocabulary.js";

const refuse = (message) => { throw new Error(message); };
const unsuffixed = (text, end) => (text.endsWith(end) ? text.slice(0, -end.length) : text);
const plural = (n) => (n === 1 ? "" : "s");

/** The question's tokens by the format's spots, of numbers given as texts of digits. */
function byFormat(format, numbers) {
  const out = [];
  for (const [name, digit] of format.spots.slice(0, format.first)) {
    if (name === "token") { out.push(digit); continue; }
    const digits = numbers[name].replace(/^0+(?=.)/, "");
    if (format.padded || digit === 0 || digits.length > digit) out.push(Number(digits.at(-1 - digit) ?? 0));
  }
  return out;
}

// how -> the tokens of the question. r: the reading, v: the vocabulary
const PROMPTS = {
  words: (r, v, text) => v.encode(text),

  examples: (r, v, text) => r.known?.get(text) ?? v.encode(text),

  sum(r, v, text, task) {
    const found = spaces("^(?:<bos>)?\\s*([0-9]+)\\s*\\+\\s*([0-9]+)\\s*=?$").exec(strip(text));
    if (!found || Math.max(found[1].length, found[2].length) > r.digits) {
      const given = Array.from(text).length <= 60 ? text : `${cut(text, 59)}…`;
      const wanted = `two whole numbers of at most ${r.digits} digit${plural(r.digits)} and a + between them`;
      refuse(`input ${quoted(given)} — expected ${wanted}, such as 4+8`);
    }
    return byFormat(task.format, { a: found[1], b: found[2] });
  },

  product(r, v, text) {
    const found = spaces("^\\s*([0-9]+)\\s*\\*\\s*([0-9]+)\\s*=?\\s*$").exec(text), n = r.digits;
    if (!found || Math.max(found[1].length, found[2].length) > n) {
      const such = `such as ${"12".slice(0, n)}*${"34".slice(0, n)}, got ${quoted(cut(text, 40))}`;
      refuse(`multiplication — expected two numbers of at most ${n} digit${plural(n)} ${such}`);
    }
    return v.encode(`${found[1].padStart(n, "0")}*${found[2].padStart(n, "0")}=`);
  },

  "sum of one place"(r, v, text) {
    const found = spaces("^\\s*([0-9]+)\\s*\\+\\s*([0-9]+)\\s*=?\\s*$").exec(text), n = r.digits;
    if (!found || Math.max(found[1].length, found[2].length) > n) {
      refuse(`input ${quoted(text)} — expected a sum of two numbers of up to ${n} digits`);
    }
    return v.encode(`${found[1].padStart(n, "0")}+${found[2].padStart(n, "0")}=`);
  },

  "two digits"(r, v, text) {
    const words = split(unsuffixed(text.toLowerCase().replace("+", " "), "="));
    const tokens = v.encode(words.join(""));
    if (tokens.length !== 2) {
      refuse(`input ${quoted(text)} — expected two digits, as in '4 8', got ${tokens.length}`);
    }
    return tokens;
  },

  modular(r, v, text) {
    const numbers = split(unsuffixed(strip(text), "=").replace(r.operation, " "));
    const what = `input ${quoted(text)} —`;
    if (numbers.length !== 2 || !numbers.every((n) => /^[0-9]{1,8}$/.test(n))) {
      refuse(`${what} expected two numbers, as in '1${r.operation}1'`);
    }
    const [a, b] = numbers.map(Number), most = Math.max(a, b);
    if (most >= r.p) refuse(`${what} expected numbers from 0 to ${r.p - 1}, got ${most}`);
    if (r.operation === "/" && common(b, r.p) !== 1) {
      refuse(`${what} ${b} has no inverse modulo ${r.p}`);
    }
    return r.plus ? [a, r.p + 1, b, r.p] : [a, b, r.p];
  },

  key(r, v, text) {
    const tokens = v.encode(text);
    if (tokens.length < r.key_length) {
      refuse(`input ${quoted(text)} — ${r.key_length} tokens were expected, got ${tokens.length}`);
    }
    return tokens;
  },

  message: (r, v, text) => [r.tokens[0], ...Array.from(text, (char) => v.index(char))],

  reversed(r, v, text) {
    const tokens = v.encode(unsuffixed(strip(text), "="));
    if (tokens.length !== r.length || Math.max(...tokens) >= r.alphabet) {
      const wanted = `${r.length} of ${v.tokens.slice(0, r.alphabet).join("")}`;
      refuse(`input ${quoted(text)} — expected ${wanted}; another length is another option length=`);
    }
    return [...tokens, v.index("=")];
  },

  found(r, v, text) {
    const tokens = v.encode(text);
    if (tokens.length <= r.prefix) {
      const wanted = `at least ${r.prefix + 1} tokens`;
      refuse(`input ${quoted(text)} — ${wanted} were expected, got ${tokens.length}`);
    }
    return r.bos ? [r.vocab, ...tokens] : tokens;
  },

  sorted: (r, v, text, task) => [...listed(r, v, v.encode(text), text, task), 0],

  "sorted by digits"(r, v, text, task) {
    const numbers = split(text.replaceAll(",", " ")).map((word) => {
      const digits = v.encode(word);
      if (digits.length > r.digits) {
        refuse(`${word} — at most ${r.digits} digits were expected, got ${digits.length}`);
      }
      return parseInt(word, r.base);
    });
    const spelled = (n) => Array.from(n.toString(r.base).padStart(r.digits, "0"), (d) => parseInt(d, r.base));
    return [...listed(r, v, numbers, text, task), 0].flatMap(spelled);
  },

  source(r, v, text, task) {
    let tokens;
    try {
      tokens = r.commas ? split(text).map((word) => v.index(word)) : v.encode(text);
    } catch (e) {
      const one = split(text), chars = Array.from(strip(text));
      if (one.length === 1 && chars.every((char) => v.places.has(char))) {
        refuse(`${e.message}; separate tokens by spaces: ${chars.slice(0, 40).join(" ")}`);
      }
      throw e;
    }
    if (tokens[0] === 0) tokens = tokens.slice(1);
    if (tokens.includes(0)) refuse("input — expected <bos> only as the first token");
    if (tokens.length < 1 || tokens.length > r.length) {
      const most = r.length.toLocaleString("en"), got = tokens.length.toLocaleString("en");
      refuse(`input — ${task.ref} takes 1 to ${most} tokens, got ${got}`);
    }
    return [0, ...tokens];
  },
};

function common(a, b) {
  return b ? common(b, a % b) : a;
}

/** A list of the domain, without its delimiter. */
function listed(r, v, numbers, text, task) {
  const list = numbers.at(-1) === 0 ? numbers.slice(0, -1) : numbers;
  const what = `${task.ref.split(":")[0]} of ${quoted(cut(text, 40))}`;
  if (list.includes(0)) refuse(`${what} — ${v.text(0)} ends a list and cannot stand within`);
  if (!r.repeats && new Set(list).size < list.length) {
    refuse(`${what} — different numbers were expected (repeats=true sorts the rest)`);
  }
  if (list.length < r.shortest || list.length > r.length) {
    refuse(`${what} — ${r.shortest} to ${r.length} numbers were expected, got ${list.length}`);
  }
  return list;
}

/** After the delimiter may come the start of the sorted list. */
function readSorted(task, v, text) {
  const prompt = (t) => PROMPTS[task.reading.how](task.reading, v, t, task);
  const words = split(text.replaceAll(",", " ")), zero = new Set(v.text(0));
  const same = (word) => new Set(word).size === zero.size && [...word].every((char) => zero.has(char));
  const at = words.findIndex(same), end = at < 0 ? words.length : at;
  const question = prompt(words.slice(0, end).join(" ")), start = words.slice(end + 1);
  const bare = (word) => word.replace(/^0+/, "");
  const right = words.slice(0, end).sort((a, b) => Number(a) - Number(b));
  if (String(start.map(bare)) !== String(right.slice(0, start.length).map(bare))) return [prompt(text), []];
  const answer = prompt(right.join(" ")).slice(0, steps(task, question));
  return [question, answer.slice(0, Math.floor(answer.length / end) * start.length)];
}

// ── what decoding asks ─────────────────────────────────────────────────────────────────────────
/** The tokens of a text: the question, and how the answer begins if it goes on. */
export function read(model, text) {
  const { task, vocabulary } = model;
  const [question, start] = task ? readBy(task, vocabulary, text) : [vocabulary.encode(text), []];
  if (!question.length) refuse("input — expected at least one token");
  if (task && start.length && (start.includes(task.stop) || start.length >= steps(task, question))) {
    const what = `${quoted(cut(vocabulary.decode(start), 40))} is a whole answer`;
    refuse(`input ${quoted(cut(text, 60))} — ${what}, nothing comes after it`);
  }
  const n = question.length + start.length;
  if (n > model.config.n_ctx) {
    refuse(`input of ${n} tokens — longer than the block of ${model.config.n_ctx} tokens`);
  }
  return [question, start];
}

function readBy(task, v, text) {
  const { how, mark } = task.reading;
  if (how.startsWith("sorted")) return readSorted(task, v, text);
  const at = mark ? text.indexOf(mark) : -1, end = at < 0 ? text.length : at + mark.length;
  const question = PROMPTS[how](task.reading, v, text.slice(0, end), task);
  return [question, v.encode(strip(text.slice(end)))];
}

/** How many tokens to decode, at most, after a prompt. */
export function steps(task, prompt) {
  const r = task.reading;
  if (r.how === "message") return Math.max(r.tokens.length - prompt.length, 1);
  if (r.how === "sorted") return prompt.length - 1;
  if (r.how === "sorted by digits") return prompt.length - r.digits;
  if (r.how === "source") return task.stop === null ? 1 : Math.max(1, room(task, prompt));
  return r.steps;
}

/** How many tokens may follow a prompt before nothing is known of what is right; or null. */
export function room(task, prompt) {
  return task.reading.how === "source" ? task.reading.length + 2 - prompt.length : null;
}

/** The text of the tokens that a model produced. */
export function answer(model, tokens) {
  const { task, vocabulary } = model;
  if (!task) return vocabulary.decode(tokens);
  if (task.reading.how === "sorted by digits") {
    const text = vocabulary.decode(tokens), n = task.reading.digits;
    return (text.match(new RegExp(`.{1,${n}}`, "gs")) ?? []).join(" ");
  }
  const end = task.stop === null ? -1 : tokens.indexOf(task.stop);
  return vocabulary.decode(end < 0 ? tokens : tokens.slice(0, end));
}
