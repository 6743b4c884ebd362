//! Names the shared library as programs look for it: by its major version.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libvmarea.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
