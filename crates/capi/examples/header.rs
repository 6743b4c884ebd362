//! Prints `vmarea.h`, made by cbindgen from the sources and `cbindgen.toml`.

fn main() {
    let crate_folder = env!("CARGO_MANIFEST_DIR");
    let bindings = cbindgen::generate(crate_folder).expect("the sources make a header");
    bindings.write(std::io::stdout().lock());
}
