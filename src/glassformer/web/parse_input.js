// The user's text parsed into tokens as tasks/*.py parse it. `model.task.parser` names the parser
// and its options. The texts of a task with its own parser in Python are read by the vocabulary, or
// looked up among the page's examples.

import { BEGIN, END, InputError, pythonPattern, quoted, split, strip } from "./vocabulary.js";

const refuse = (message) => { throw new InputError(message); };
const withoutSuffix = (text, end) => (text.endsWith(end) ? text.slice(0, -end.length) : text);
const upToDigits = (n) => `of at most ${n} digit${n === 1 ? "" : "s"}`;
const OPERANDS = (sign) => pythonPattern(`^\\s*([0-9]+)\\s*\\${sign}\\s*([0-9]+)\\s*=?\\s*$`);

/** Question tokens in the order of the format's spots; `numbers` are texts of digits. */
function byFormat(format, numbers) {
  const tokens = [];
  for (const [name, digit] of format.spots.slice(0, format.first)) {
    if (name === "token") { tokens.push(digit); continue; }
    const digits = numbers[name].replace(/^0+(?=.)/, "");
    if (format.padded || digit === 0 || digits.length > digit) {
      tokens.push(Number(digits.at(-1 - digit) ?? 0));
    }
  }
  return tokens;
}

/** The two operands of a text such as 12+34, each of at most `digits` digits. */
function operands(text, pattern, digits, example) {
  const match = pattern.exec(text);
  if (!match || Math.max(match[1].length, match[2].length) > digits) {
    refuse(`expected two numbers ${upToDigits(digits)}, such as ${example}`);
  }
  return [match[1], match[2]];
}

// Parser name -> (options, vocabulary, text, task) -> tokens of the question.
const PARSERS = {
  words: (options, v, text) => v.encode(text),

  examples: (options, v, text) => options.known?.get(text) ?? v.encode(text),

  addition({ digits }, v, text, task) {
    const pattern = pythonPattern("^(?:<bos>)?\\s*([0-9]+)\\s*\\+\\s*([0-9]+)\\s*=?$");
    const [a, b] = operands(strip(text), pattern, digits, "4+8");
    return byFormat(task.format, { a, b });
  },

  multiplication({ digits: n }, v, text) {
    const [a, b] = operands(text, OPERANDS("*"), n, `${"12".slice(0, n)}*${"34".slice(0, n)}`);
    return v.encode(`${a.padStart(n, "0")}*${b.padStart(n, "0")}=`);
  },

  "add-mod"({ digits: n }, v, text) {
    const [a, b] = operands(text, OPERANDS("+"), n, "4+8");
    return v.encode(`${a.padStart(n, "0")}+${b.padStart(n, "0")}=`);
  },

  "add-digit"(options, v, text) {
    const words = split(withoutSuffix(text.toLowerCase().replace("+", " "), "="));
    const tokens = v.encode(words.join(""));
    return tokens.length === 2 ? tokens : refuse("expected two digits, such as 4 8");
  },

  modular({ operation, p, plus }, v, text) {
    const numbers = split(withoutSuffix(strip(text), "=").replace(operation, " "));
    const [a, b] = numbers.map(Number);
    if (numbers.length !== 2 || !numbers.every((n) => /^[0-9]{1,8}$/.test(n))
        || Math.max(a, b) >= p) {
          refuse(`expected two numbers from 0 to ${p - 1}, such as 1${operation}1`);
        }
    if (operation === "/" && gcd(b, p) !== 1) refuse(`${b} has no inverse modulo ${p}`);
    return plus ? [a, p + 1, b, p] : [a, b, p];
  },

  lookup({ key_length: n }, v, text) {
    const tokens = v.encode(text);
    return tokens.length < n ? refuse(`expected ${n} tokens, got ${tokens.length}`) : tokens;
  },

  message: ({ tokens }, v, text) => [tokens[0], ...Array.from(text, (char) => v.index(char))],

  reverse({ length, alphabet }, v, text) {
    const tokens = v.encode(withoutSuffix(strip(text), "="));
    if (tokens.length !== length || Math.max(...tokens) >= alphabet) {
      refuse(`expected ${length} of ${v.tokens.slice(0, alphabet).join("")}`);
    }
    return [...tokens, v.index("=")];
  },

  search({ prefix, bos, vocab }, v, text) {
    const tokens = v.encode(text);
    if (tokens.length <= prefix) {
      refuse(`expected at least ${prefix + 1} tokens, got ${tokens.length}`);
    }
    return bos ? [vocab, ...tokens] : tokens;
  },

  sort: (options, v, text) => [...checkList(options, v, v.encode(text)), 0],

  "sort-digits"(options, v, text) {
    const { digits: n, base } = options;
    const numbers = split(text.replaceAll(",", " ")).map((word) => {
      if (v.encode(word).length > n) refuse(`expected numbers ${upToDigits(n)}, got ${word}`);
      return parseInt(word, base);
    });
    return [...checkList(options, v, numbers), 0].flatMap((number) => (
        Array.from(number.toString(base).padStart(n, "0"), (digit) => parseInt(digit, base))));
  },

  source({ commas, length }, v, text, task) {
    let tokens;
    try {
      tokens = commas ? split(text).map((word) => v.index(word)) : v.encode(text);
    } catch (e) {
      const chars = Array.from(strip(text));
      if (split(text).length === 1 && chars.every((char) => v.ids.has(char))) {
        refuse(`separate tokens by spaces: ${chars.slice(0, 40).join(" ")}`);
      }
      throw e;
    }
    if (tokens[0] === 0) tokens = tokens.slice(1);
    if (tokens.includes(0)) refuse("<bos> is only allowed at the beginning");
    if (tokens.length < 1 || tokens.length > length) {
      refuse(`${task.ref} expects 1 to ${length} tokens, got ${tokens.length}`);
    }
    return [0, ...tokens];
  },
};

function gcd(a, b) {
  return b ? gcd(b, a % b) : a;
}

/** A list of the domain, without its delimiter. */
function checkList({ repeats, shortest, length }, v, numbers) {
  const list = numbers.at(-1) === 0 ? numbers.slice(0, -1) : numbers;
  if (list.includes(0)) refuse(`${v.text(0)} is only allowed at the end of a list`);
  if (!repeats && new Set(list).size < list.length) refuse("expected distinct numbers");
  if (list.length < shortest || list.length > length) {
    refuse(`expected ${shortest} to ${length} numbers, got ${list.length}`);
  }
  return list;
}

/** The start of the sorted list may follow the delimiter. */
function readSorted(task, v, text) {
  const prompt = (t) => PARSERS[task.parser.name](task.parser, v, t, task);
  const words = split(text.replaceAll(",", " ")), zero = new Set(v.text(0));
  const isZero = (word) => new Set(word).size === zero.size && [...word].every((c) => zero.has(c));
  const at = words.findIndex(isZero), end = at < 0 ? words.length : at;
  const question = prompt(words.slice(0, end).join(" ")), start = words.slice(end + 1);
  const withoutZeros = (word) => word.replace(/^0+/, "");
  const sorted = words.slice(0, end).sort((a, b) => Number(a) - Number(b));
  const right = sorted.slice(0, start.length).map(withoutZeros);
  if (String(start.map(withoutZeros)) !== String(right)) return [prompt(text), []];
  const answer = prompt(sorted.join(" ")).slice(0, maxNewTokens(task, question));
  return [question, answer.slice(0, Math.floor(answer.length / end) * start.length)];
}

// ── used by decoding ───────────────────────────────────────────────────────────────────────────
/** The tokens of a text: [question, start of the answer if the text continues with one]. */
export function read(model, text) {
  const { task, vocabulary } = model;
  const [question, start] = readText(task, vocabulary, text);
  if (!question.length) refuse("expected at least one token");
  const isWhole = () => start.includes(task.stop) || start.length >= maxNewTokens(task, question);
  if (task && start.length && isWhole()) {
    refuse(`${quoted(vocabulary.decode(start))} is a complete answer: no token follows it`);
  }
  const n = question.length + start.length;
  if (n > model.config.n_ctx) {
    refuse(`expected at most ${model.config.n_ctx} tokens (the context length), got ${n}`);
  }
  return [question, start];
}

/** An input that the task refuses may also be a list of tokens, such as 0 4 + 0 2 =. Without a
 * task, an empty input is <bos>. */
function readText(task, v, text) {
  const parse = (t) => (task ? readQuestion(task, v, t) : [v.encode(t), []]);
  try {
    const [question, start] = parse(text), begin = v.idOf(BEGIN);
    return [!question.length && !task && begin !== null ? [begin] : question, start];
  } catch (e) {
    if (!(e instanceof InputError)) throw e;
    const joined = v.joinWords(text, task?.parser.name === "sort-digits" ? " " : v.sep);
    if (joined === null) throw e;
    try {
      return parse(joined);
    } catch {
      throw e;
    }
  }
}

function readQuestion(task, v, text) {
  const { name, question_end: mark } = task.parser;
  if (name.startsWith("sort")) return readSorted(task, v, text);
  const at = mark ? text.indexOf(mark) : -1, end = at < 0 ? text.length : at + mark.length;
  const question = PARSERS[name](task.parser, v, text.slice(0, end), task);
  return [question, v.encode(strip(text.slice(end)))];
}

/** The maximum number of tokens to decode after a prompt. */
export function maxNewTokens(task, prompt) {
  const { name, tokens, digits, steps } = task.parser;
  if (name === "message") return Math.max(tokens.length - prompt.length, 1);
  if (name === "sort") return prompt.length - 1;
  if (name === "sort-digits") return prompt.length - digits;
  if (name !== "source") return steps;
  return task.stop === null ? 1 : Math.max(1, tokensWithinDomain(task, prompt));
}

/** The number of tokens that may follow a prompt within the task's domain; null: no limit. */
export function tokensWithinDomain(task, prompt) {
  return task.parser.name === "source" ? task.parser.length + 2 - prompt.length : null;
}

/** The text of generated tokens, without the stop token. */
export function answer(model, tokens) {
  const { task, vocabulary } = model;
  if (!task) {
    const end = tokens.length && tokens.at(-1) === vocabulary.idOf(END) ? -1 : undefined;
    return vocabulary.decode(tokens.slice(0, end));
  }
  if (task.parser.name === "sort-digits") {
    const text = vocabulary.decode(tokens), n = task.parser.digits;
    return (text.match(new RegExp(`.{1,${n}}`, "gs")) ?? []).join(" ");
  }
  const end = task.stop === null ? -1 : tokens.indexOf(task.stop);
  return vocabulary.decode(end < 0 ? tokens : tokens.slice(0, end));
}
