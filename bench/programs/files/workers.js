// Worker threads that build, transform and pass on data; prints digests.
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const crypto = require('node:crypto');
const zlib = require('node:zlib');

const sha = (data) => crypto.createHash('sha256').update(data).digest('hex');

function random(seed) {
  let x = seed;
  return () => ((x ^= x << 13), (x ^= x >>> 17), (x ^= x << 5), x >>> 0);
}

function records(seed, count) {
  const next = random(seed);
  return Array.from({ length: count }, (_, i) => ({
    id: i,
    name: 'name-' + next().toString(36),
    tags: Array.from({ length: next() % 8 }, () => 'tag' + (next() % 500)),
    blob: Buffer.alloc(next() % 400, next() % 256).toString('base64'),
  }));
}

function round(seed) {
  const text = JSON.stringify(records(seed, 3000));
  const packed = zlib.gzipSync(text, { level: 6 });
  const back = JSON.parse(zlib.gunzipSync(packed).toString());
  const counts = new Map();
  for (const r of back) for (const t of r.tags) counts.set(t, (counts.get(t) || 0) + 1);
  const replaced = text.replace(/name-([a-z0-9]+)/g, (_, n) => n.toUpperCase());
  const brotli = zlib.brotliDecompressSync(
    zlib.brotliCompressSync(replaced, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 4 } }));
  return sha(packed.length > 0 && brotli) + sha(JSON.stringify([...counts].sort()));
}

if (isMainThread) {
  const jobs = Array.from({ length: 6 }, (_, i) => new Promise((done, broken) => {
    const worker = new Worker(__filename, { workerData: { seed: i + 1 } });
    const parts = [];
    worker.on('message', (m) => parts.push(sha(Buffer.from(m.buffer)) + m.digest));
    worker.on('error', broken);
    worker.on('exit', () => done(sha(parts.join())));
  }));
  Promise.all(jobs).then((all) => all.forEach((d, i) => console.log(`worker ${i + 1}: ${d}`)));
} else {
  for (let i = 0; i < 6; i++) {
    const buffer = new ArrayBuffer(1 << 20);
    new Uint8Array(buffer).fill(i + workerData.seed);
    parentPort.postMessage({ buffer, digest: round(workerData.seed * 1000 + i) }, [buffer]);
  }
}
