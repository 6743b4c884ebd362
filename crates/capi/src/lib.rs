//! The C interface of the core: machines and address spaces for programs in C and C++.
//!
//! The crate is built as `libvmarea.a` and `libvmarea.so`, whose functions are documented in
//! `include/vmarea.h`. Each function checks what C passes, converts it to the core's types and
//! calls one method of [`vmarea::Space`]. The crate itself makes no decisions.
//!
//! # Picture
//! ```text
//! C program ──vmarea_syscall, vmarea_fault──▶ boundary ──▶ core
//!     ▲                                                     │
//!     └────────── callbacks: frames, files, MMU ◀───────────┘
//! ```
//! A panic cannot leave an `extern "C"` function: the process aborts with the panic's message.
//! Without the feature `std`, the embedder provides the allocator and the end of a panic.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod boundary;
mod callbacks;
mod changes;
mod fault;
mod maps;
mod mm;
mod mmu;
#[cfg(not(feature = "std"))]
mod no_std;
mod options;
mod page;
mod platform;
mod space;
mod syscall;
mod verdict;
