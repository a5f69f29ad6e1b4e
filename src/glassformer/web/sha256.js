// SHA-256 (FIPS 180-4): a page that was opened from a disk has no SubtleCrypto, and a checkpoint must
// be sealed.

const FIRST = primes(64);
const ROUND = FIRST.map((p) => fraction(Math.cbrt(p)));
const START = FIRST.slice(0, 8).map((p) => fraction(Math.sqrt(p)));

function primes(n) {
  const found = [];
  for (let i = 2; found.length < n; i++) if (found.every((p) => i % p)) found.push(i);
  return found;
}

function fraction(x) {
  return Math.floor((x - Math.floor(x)) * 2 ** 32) | 0;
}

const turned = (x, n) => (x >>> n) | (x << (32 - n));

/** The hash of some bytes, in hexadecimal. */
export function sha256(bytes) {
  const blocks = Math.ceil((bytes.length + 9) / 64), padded = new Uint8Array(64 * blocks);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer), state = Int32Array.from(START), w = new Int32Array(64);
  view.setUint32(padded.length - 8, Math.floor(bytes.length / 2 ** 29));
  view.setUint32(padded.length - 4, (bytes.length * 8) >>> 0);
  for (let at = 0; at < padded.length; at += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const a = w[i - 15], b = w[i - 2];
      const low = turned(a, 7) ^ turned(a, 18) ^ (a >>> 3), high = turned(b, 17) ^ turned(b, 19) ^ (b >>> 10);
      w[i] = w[i - 16] + low + w[i - 7] + high;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
      const mixed = turned(e, 6) ^ turned(e, 11) ^ turned(e, 25), choice = (e & f) ^ (~e & g);
      const first = (h + mixed + choice + ROUND[i] + w[i]) | 0;
      const major = (a & b) ^ (a & c) ^ (b & c);
      const second = ((turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + major) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((x, i) => { state[i] = state[i] + x; });
  }
  return Array.from(state, (x) => (x >>> 0).toString(16).padStart(8, "0")).join("");
}
