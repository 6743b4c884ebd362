//! Sets the shared library's soname, which contains the major version.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libvmarea.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
