//! Calls, faults and threads in a `Space`, as an embedder makes them.
//!
//! One program, because each program compiles the core's generic code again. `thesis` and `enumeration` are the
//! tests of the merge decision, and `mmu` those of page tables: changes that a test must find are built with them alone.

mod bare;
mod rng;
#[path = "../world/mod.rs"]
mod world;

mod async_pages;
mod bad_embedder;
mod changes;
mod edges;
mod environment;
mod extensions;
mod file_uses;
mod kernel_rules;
mod layout;
mod memory;
mod own_policy;
mod pages;
mod random_calls;
mod reclaim;
mod refused;
mod rmap_new_owner;
mod rmap_threads;
mod special_mappings;
mod swap_map;
mod threads;
mod user_copy;
mod why_refused;
mod writers;
