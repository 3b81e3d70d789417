// GRADCHECK/1 at level `frames` for Node.js, without packages, for little-endian machines.
// Copy this file, keep part 1, put your own operators into part 2.
"use strict";
const { readSync, writeSync } = require("node:fs");

// ── part 1: frames and the conversation ──

const MAGIC = Buffer.from("GRDC\r\n\x1a\n", "latin1");
const HEADER_MAX = 2 ** 24;
const PAYLOAD_MAX = 2 ** 36;
const TYPES = { float64: Float64Array, float32: Float32Array, int64: BigInt64Array };
const ROLES = { vjp: "gradient", forward: "output" };
console.log = console.info = console.error; // what an operator prints is no frame

class BadFrame extends Error {} // the input is out of step: there is no way to go on
class Unsupported extends Error {} // throw this for what your operator lacks

function exactly(count, atStart = false) {
  const pieces = []; // read piece by piece: a length that is only claimed takes no memory
  for (let left = count; left > 0; ) {
    const piece = Buffer.allocUnsafe(Math.min(left, 2 ** 20));
    const got = readSync(0, piece);
    if (got === 0 && atStart && left === count) return null;
    if (got === 0) throw new BadFrame("the input ends within a frame");
    pieces.push(piece.subarray(0, got));
    left -= got;
  }
  return Buffer.concat(pieces);
}

function receive() {
  const prefix = exactly(20, true);
  if (prefix === null) return null;
  const size = prefix.readUInt32LE(8);
  const rest = prefix.readBigUInt64LE(12);
  if (!prefix.subarray(0, 8).equals(MAGIC)) throw new BadFrame("a frame has another beginning");
  if (size > HEADER_MAX || rest > PAYLOAD_MAX) throw new BadFrame("a frame is too large");
  const bytes = exactly(size);
  const payload = exactly(Number(rest));
  let text, header;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    header = JSON.parse(text);
  } catch (error) {
    throw new BadFrame(`the header is no JSON: ${error.message}`);
  }
  if (header === null || typeof header !== "object" || Array.isArray(header)) {
    throw new BadFrame("the header is no object");
  }
  return { header, payload, seq: asWritten(text, '"seq"') };
}

// The value of a key of the outermost object as it was written: a number may not survive parsing.
function asWritten(text, key) {
  let found = "null";
  let depth = 0;
  let start = -1;
  let last = "";
  for (const match of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/g)) {
    const token = match[0];
    if (depth === 1 && start >= 0 && (token === "," || token === "}")) {
      found = text.slice(start, match.index);
      start = -1;
    }
    if (depth === 1 && token === ":" && last === key) start = match.index + 1;
    depth += "{[".includes(token) ? 1 : "}]".includes(token) ? -1 : 0;
    last = token;
  }
  return found;
}

function send(said, seq, payload = Buffer.alloc(0)) {
  const header = Buffer.from(`{"seq":${seq},${JSON.stringify(said).slice(1)}`);
  const lengths = Buffer.alloc(12);
  lengths.writeUInt32LE(header.length, 0);
  lengths.writeBigUInt64LE(BigInt(payload.length), 4);
  const frame = Buffer.concat([MAGIC, lengths, header, payload]);
  for (let at = 0; at < frame.length; ) at += writeSync(1, frame, at);
}

function unpack(header, payload) {
  const arrays = {};
  for (const { role, name, dtype, shape, offset, nbytes } of header.blocks) {
    if (![offset, nbytes, ...shape].every((n) => Number.isSafeInteger(n) && n >= 0)) {
      throw new Error(`block ${name}: lengths are whole numbers`);
    }
    if (!(dtype in TYPES)) throw new Unsupported(`no ${dtype}`);
    const size = shape.reduce((a, b) => a * b, TYPES[dtype].BYTES_PER_ELEMENT);
    if (size !== nbytes || offset + nbytes > payload.length) {
      throw new Error(`block ${name} does not fill its shape, or lies outside of the payload`);
    }
    const bytes = Uint8Array.from(payload.subarray(offset, offset + nbytes));
    arrays[`${role}.${name}`] = { dtype, shape, data: new TYPES[dtype](bytes.buffer) };
  }
  return arrays;
}

function run(header, payload) {
  const { op, ask, dtype } = header;
  const offer = Object.hasOwn(OPS, op) ? OPS[op] : null;
  if (!offer || !offer.asks.includes(ask) || !offer.dtypes.includes(dtype)) {
    throw new Unsupported(`no ${ask} of ${op} in ${dtype}`);
  }
  const results = CALLS[op](ask, unpack(header, payload), header.attrs);
  const blocks = [];
  const pieces = [];
  let offset = 0;
  for (const [name, { like, data }] of Object.entries(results)) {
    const nbytes = data.byteLength;
    blocks.push({ role: ROLES[ask], name, dtype: like.dtype, shape: like.shape, offset, nbytes });
    pieces.push(Buffer.from(data.buffer), Buffer.alloc(-nbytes & 63));
    offset += nbytes + (-nbytes & 63);
  }
  return [{ kind: "result", blocks }, Buffer.concat(pieces)];
}

function answer({ header, payload }) {
  try {
    if (header.kind === "hello") {
      return [{ kind: "hello", protocol: 1, implementation: ABOUT, ops: OPS }];
    }
    if (header.kind === "ping") return [{ kind: "pong" }];
    if (header.kind === "reset") return [{ kind: "done" }]; // there is no cache to forget
    if (header.kind === "run") return run(header, payload);
    throw new Error(`no such kind: ${JSON.stringify(header.kind)}`);
  } catch (error) {
    if (error instanceof Unsupported) return [{ kind: "unsupported", reason: error.message }];
    return [{ kind: "error", message: String(error), traceback: error.stack }];
  }
}

function serve() {
  try {
    for (let message; (message = receive()) && message.header.kind !== "bye"; ) {
      const [said, payload] = answer(message);
      send(said, message.seq, payload);
    }
  } catch (error) {
    if (!(error instanceof BadFrame)) throw error;
    send({ kind: "error", message: error.message }, "null");
    process.exitCode = 1;
  }
}

// ── part 2: the operators ──

const ABOUT = { name: "grads.js", version: "1", language: "JavaScript" };
const BOTH = { asks: ["vjp", "forward"], dtypes: ["float64", "float32"] };
const OPS = { rms_norm: { ...BOTH, attrs: ["eps", "unit_offset"] }, silu: { ...BOTH, attrs: [] } };
const CALLS = { rms_norm: rmsNorm, silu };

function rmsNorm(ask, arrays, { eps, unit_offset: shifted }) {
  const x = arrays["input.x"];
  const w = arrays["input.w"];
  const d = x.shape.at(-1);
  const ct = ask === "vjp" ? arrays["cotangent.0"].data : x.data;
  const gain = Array.from({ length: d }, (_, j) => (w ? w.data[j] + Number(shifted) : 1));
  const [y, dx, dw] = [x.data.slice(), x.data.slice(), w && w.data.slice().fill(0)];
  for (let i = 0; i < x.data.length; i += d) {
    const square = gain.reduce((sum, _, j) => sum + x.data[i + j] ** 2 / d, eps);
    const r = 1 / Math.sqrt(square);
    const mean = gain.reduce((sum, g, j) => sum + (ct[i + j] * g * x.data[i + j] * r) / d, 0);
    gain.forEach((g, j) => {
      const n = x.data[i + j] * r;
      y[i + j] = n * g;
      dx[i + j] = r * (ct[i + j] * g - n * mean);
      if (w) dw[j] += ct[i + j] * n;
    });
  }
  if (ask === "forward") return { 0: { like: x, data: y } };
  return { x: { like: x, data: dx }, ...(w && { w: { like: w, data: dw } }) };
}

function silu(ask, arrays) {
  const x = arrays["input.x"];
  const factor = ask === "vjp" ? arrays["cotangent.0"].data : x.data;
  // WRONG, for show: vjp lacks the term ct·x·s·(1 − s)
  const data = x.data.map((v, i) => factor[i] / (1 + Math.exp(-v)));
  return ask === "vjp" ? { x: { like: x, data } } : { 0: { like: x, data } };
}

serve();
