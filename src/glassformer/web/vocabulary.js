// Text to tokens and back, as vocabulary.py does it, with the same messages. What Python means by a
// blank, a character and the spelling of a text in quotes is here too: messages must agree.

const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const BLANKS = new RegExp(`[${SPACE}]+`, "u"), COMMAS = new RegExp(`[${SPACE},]+`, "u");

// ── texts as Python has them ───────────────────────────────────────────────────────────────────
export const spaces = (pattern) => new RegExp(pattern.replaceAll("\\s", `[${SPACE}]`), "u");
export const strip = (text) => text.replace(new RegExp(`^[${SPACE}]+|[${SPACE}]+$`, "gu"), "");
export const split = (text) => text.split(BLANKS).filter((word) => word);
export const cut = (text, n) => Array.from(text).slice(0, n).join("");

/** A text in quotes, as Python's repr spells it. */
export function quoted(text) {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const named = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", [quote]: `\\${quote}` };
  return quote + Array.from(text, (char) => {
    if (Object.hasOwn(named, char)) return named[char];
    if (char === " " || !/[\p{C}\p{Z}]/u.test(char)) return char;
    const code = char.codePointAt(0).toString(16);
    return code.length < 3 ? `\\x${code.padStart(2, "0")}`
      : code.length < 5 ? `\\u${code.padStart(4, "0")}` : `\\U${code.padStart(8, "0")}`;
  }).join("") + quote;
}

const short = (text) => quoted(Array.from(text).length <= 40 ? text : `${cut(text, 39)}…`);

// ── the vocabulary ─────────────────────────────────────────────────────────────────────────────
export class Vocabulary {
  /** What Vocabulary.to_json gives: {tokens, sep} or {numbers, first}. */
  constructor(data) {
    this.numbers = data.numbers ?? 0;
    this.first = data.first ?? 0;
    this.tokens = data.tokens ?? null;
    this.sep = this.numbers ? " " : data.sep;
    this.size = this.numbers || this.tokens.length;
    this.places = new Map((this.tokens ?? []).map((token, i) => [token, i]));
  }

  text(i) {
    return this.numbers ? String(this.first + i) : this.tokens[i];
  }

  toString() {
    const few = Array.from({ length: Math.min(this.size, 20) }, (_, i) => this.text(i)).join(this.sep);
    const more = this.size > 20 || Array.from(few).length > 200 ? " …" : "";
    return `${this.size} tokens: ${cut(few, 200)}${more}`;
  }

  /** The number of a token. */
  index(token) {
    if (this.numbers) {
      const last = this.first + this.numbers - 1, n = Number(token);
      if (!/^-?[0-9]{1,18}$/.test(token) || n < this.first || n > last) {
        throw new Error(`token ${short(token)} — expected a whole number from ${this.first} to ${last}`);
      }
      return n - this.first;
    }
    if (!this.places.has(token)) {
      throw new Error(`token ${short(token)} — not in the vocabulary (${this})`);
    }
    return this.places.get(token);
  }

  /** The token numbers of a text. */
  encode(text) {
    if (this.sep && !strip(this.sep)) { // be kind: any white space and commas separate
      return strip(text).split(COMMAS).filter((word) => word).map((word) => this.index(word));
    }
    if (this.sep) return text.split(this.sep).filter((word) => word).map((word) => this.index(word));
    const found = [];
    for (let at = 0; at < text.length;) {
      const token = this.longest().find((each) => text.startsWith(each, at));
      if (token === undefined) {
        const char = String.fromCodePoint(text.codePointAt(at));
        const where = `at character ${Array.from(text.slice(0, at)).length + 1} of ${short(text)}`;
        throw new Error(`token ${quoted(char)} ${where} — not in the vocabulary (${this})`);
      }
      found.push(this.places.get(token));
      at += token.length;
    }
    return found;
  }

  /** The text of token numbers. */
  decode(tokens) {
    return Array.from(tokens, (n) => {
      if (!(n >= 0 && n < this.size)) {
        throw new Error(`token ${n} — expected a number from 0 to ${this.size - 1}`);
      }
      return this.text(n);
    }).join(this.sep);
  }

  /** The tokens, the longest first: the first that fits is meant. */
  longest() {
    const length = (token) => Array.from(token).length;
    this.by_length ??= [...this.tokens].sort((a, b) => length(b) - length(a));
    return this.by_length;
  }
}

/** The token numbers of a text, in the words of the model's vocabulary. */
export const encode = (model, text) => model.vocabulary.encode(text);
export const decodeText = (model, tokens) => model.vocabulary.decode(tokens);
