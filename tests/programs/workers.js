// Four worker threads, each with a separate heap that grows and is collected, and one shared buffer. Exits with 1 if a worker failed.
// usage: workers.js [ROUNDS]
const { Worker, isMainThread, parentPort, workerData } = require("node:worker_threads");

const WORKERS = 4;
const ROUNDS = Number(workerData?.rounds ?? process.argv[2] ?? 40);

if (isMainThread) {
  const shared = new SharedArrayBuffer(4 * WORKERS);
  const running = [];
  for (let number = 0; number < WORKERS; number++) {
    running.push(
      new Promise((resolve, reject) => {
        const worker = new Worker(__filename, { workerData: { shared, number, rounds: ROUNDS } });
        worker.on("message", resolve);
        worker.on("error", reject);
      }),
    );
  }
  Promise.all(running)
    .then((sums) => {
      const counted = Array.from(new Int32Array(shared)).reduce((a, b) => a + b);
      console.log(`${WORKERS} workers, ${counted} rounds, sum ${sums.reduce((a, b) => a + b)}`);
      process.exitCode = counted === WORKERS * ROUNDS ? 0 : 1;
    })
    .catch((error) => {
      console.error(error);
      process.exitCode = 1;
    });
} else {
  const rounds = new Int32Array(workerData.shared);
  let sum = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const objects = Array.from({ length: 2000 }, (_, i) => ({ i, text: "x".repeat(i % 50) }));
    const bytes = Buffer.alloc((round + 1) * 65536, round);
    sum += objects.reduce((a, o) => a + o.text.length, 0) + bytes[round];
    Atomics.add(rounds, workerData.number, 1);
  }
  parentPort.postMessage(sum);
}
