// WebAssembly: modules are compiled and instantiated, each with a memory that grows and is written to. V8 reserves
// guard regions of gigabytes around a memory, and maps code first writable, then executable. Exits with 1 if a sum is
// wrong.
// usage: wasm.js [MODULES [PAGES]]
const MODULES = Number(process.argv[2] ?? 20);
const PAGES = Number(process.argv[3] ?? 40);

// A section of a module: its number, its length, its content. All lengths are below 128, so they are one byte.
const section = (id, ...content) => [id, content.length, ...content];
const text = (name) => [name.length, ...Buffer.from(name)];

// (module (memory (export "memory") 1) (func (export "add") (param i32) (result i32) (i32.add (local.get 0) (i32.const N))))
const module_of = (number) =>
  new Uint8Array([
    ...[0, ...Buffer.from("asm"), 1, 0, 0, 0],
    ...section(1, 1, 0x60, 1, 0x7f, 1, 0x7f),
    ...section(3, 1, 0),
    ...section(5, 1, 0, 1),
    ...section(7, 2, ...text("memory"), 2, 0, ...text("add"), 0, 0),
    ...section(10, 1, 7, 0, 0x20, 0, 0x41, number % 64, 0x6a, 0x0b),
  ]);

async function main() {
  let kept = [];
  let sum = 0;
  for (let number = 0; number < MODULES; number++) {
    const { instance } = await WebAssembly.instantiate(module_of(number));
    const { memory, add } = instance.exports;
    for (let page = 0; page < PAGES; page++) {
      memory.grow(1);
      new Uint8Array(memory.buffer)[(page + 1) << 16] = page;
    }
    sum += add(1) - 1 - (number % 64);
    kept.push(instance);
    if (kept.length > 5) kept = kept.slice(3);
  }
  console.log(`${MODULES} modules`);
  process.exitCode = sum === 0 ? 0 : 1;
}

main();
