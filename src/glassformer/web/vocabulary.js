// Text to tokens and back, as core/vocabulary.py does it.

// The characters that Python's str.split and the regular expression \s treat as whitespace.
const SPACE =
  "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const BLANKS = new RegExp(`[${SPACE}]+`, "u"), COMMAS = new RegExp(`[${SPACE},]+`, "u");

/** Tokens before and after a text of a model without a task. */
export const BEGIN = "<bos>";
export const END = "<eos>";

/** An error in the user's input. `code` is one of CODES in utils/errors.py. */
export class InputError extends Error {
  constructor(message, code = "bad_argument") {
    super(message);
    this.code = code;
  }
}

// ── texts as Python has them ───────────────────────────────────────────────────────────────────
export const pythonPattern = (pattern) => new RegExp(pattern.replaceAll("\\s", `[${SPACE}]`), "u");
export const strip = (text) => text.replace(new RegExp(`^[${SPACE}]+|[${SPACE}]+$`, "gu"), "");
export const split = (text) => text.split(BLANKS).filter((word) => word);

/** Words as an English list: "a, b and c". */
export const joinWords = (words) => (words.length < 2 ? words.join("")
    : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`);

/** A text in quotes for a message, shortened to 40 characters. */
export function quoted(text) {
  const chars = Array.from(text);
  return JSON.stringify(chars.length <= 40 ? text : `${chars.slice(0, 39).join("")}…`);
}

// ── the vocabulary ─────────────────────────────────────────────────────────────────────────────
export class Vocabulary {
  /** `data` comes from Vocabulary.to_json: {tokens, sep} or {numbers, first}. */
  constructor(data) {
    this.numbers = data.numbers ?? 0;
    this.first = data.first ?? 0;
    this.tokens = data.tokens ?? null;
    this.sep = this.numbers ? " " : data.sep;
    this.size = this.numbers || this.tokens.length;
    this.ids = new Map((this.tokens ?? []).map((token, i) => [token, i]));
  }

  /** The text of token `i`. */
  text(i) {
    return this.numbers ? String(this.first + i) : this.tokens[i];
  }

  /** The id of a token. */
  index(token) {
    if (this.numbers) {
      const last = this.first + this.numbers - 1, n = Number(token);
      if (!/^-?[0-9]{1,18}$/.test(token) || n < this.first || n > last) {
        throw new InputError(`expected ${this.first} to ${last}, got ${quoted(token)}`);
      }
      return n - this.first;
    }
    if (!this.ids.has(token)) throw new InputError(`${quoted(token)} is not in the vocabulary`);
    return this.ids.get(token);
  }

  /** The token ids of a text. */
  encode(text) {
    if (this.sep) { // a blank separator: any whitespace and commas separate tokens
      const words = strip(this.sep) ? text.split(this.sep) : strip(text).split(COMMAS);
      return words.filter((word) => word).map((word) => this.index(word));
    }
    const tokens = [];
    for (let at = 0; at < text.length;) {
      const token = this.longestFirst().find((candidate) => text.startsWith(candidate, at));
      if (token === undefined) {
        const char = String.fromCodePoint(text.codePointAt(at));
        throw new InputError(`${quoted(char)} is not in the vocabulary`);
      }
      tokens.push(this.ids.get(token));
      at += token.length;
    }
    return tokens;
  }

  /** The id of a token, or null if it is not in the vocabulary. */
  idOf(token) {
    try {
      return this.index(token);
    } catch (e) {
      if (e instanceof InputError) return null;
      throw e;
    }
  }

  /** A text with `sep` between its tokens, which spaces and commas separate, also in brackets:
   * [1, '+', 2]. null if a word is not a token. */
  joinWords(text, sep) {
    const list = /^\[(.*)\]$/su.exec(strip(text));
    const blank = list ? (word) => word.replace(/^['"]+|['"]+$/gu, "") : (word) => word;
    const words = (list ? list[1] : text).split(COMMAS).filter((word) => word).map(blank);
    return words.some((word) => this.idOf(word) === null) ? null : words.join(sep);
  }

  /** The text of token ids. */
  decode(tokens) {
    return Array.from(tokens, (n) => {
      if (n >= 0 && n < this.size) return this.text(n);
      throw new InputError(`expected token ids from 0 to ${this.size - 1}, got ${n}`);
    }).join(this.sep);
  }

  /** The tokens in the order in which encode tries them. */
  longestFirst() {
    const length = (token) => Array.from(token).length;
    this.sorted ??= [...this.tokens].sort((a, b) => length(b) - length(a));
    return this.sorted;
  }
}
