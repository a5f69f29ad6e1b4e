// SHA-256 (FIPS 180-4), for pages opened from a file, which have no SubtleCrypto.

const PRIMES = primes(64);
const ROUND = PRIMES.map((p) => fraction(Math.cbrt(p)));
const START = PRIMES.slice(0, 8).map((p) => fraction(Math.sqrt(p)));

function primes(n) {
  const numbers = [];
  for (let i = 2; numbers.length < n; i++) if (numbers.every((p) => i % p)) numbers.push(i);
  return numbers;
}

function fraction(x) {
  return Math.floor((x - Math.floor(x)) * 2 ** 32) | 0;
}

const rotateRight = (x, n) => (x >>> n) | (x << (32 - n));

/** The hash of bytes, in hexadecimal. */
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
      const sigma0 = rotateRight(a, 7) ^ rotateRight(a, 18) ^ (a >>> 3),
        sigma1 = rotateRight(b, 17) ^ rotateRight(b, 19) ^ (b >>> 10);
      w[i] = w[i - 16] + sigma0 + w[i - 7] + sigma1;
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; i++) {
      const mixed = rotateRight(e, 6) ^ rotateRight(e, 11) ^ rotateRight(e, 25),
        choice = (e & f) ^ (~e & g);
      const first = (h + mixed + choice + ROUND[i] + w[i]) | 0;
      const major = (a & b) ^ (a & c) ^ (b & c);
      const second = ((rotateRight(a, 2) ^ rotateRight(a, 13) ^ rotateRight(a, 22)) + major) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((x, i) => { state[i] = state[i] + x; });
  }
  return Array.from(state, (x) => (x >>> 0).toString(16).padStart(8, "0")).join("");
}
