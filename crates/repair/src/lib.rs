//! Repairs a live address space: merges neighbouring mappings that could be one mapping.
//!
//! Linux never merges VMAs whose anon_vmas differ or whose page offsets are not contiguous. Since
//! Linux 6.8, user space can move pages between mappings (`UFFDIO_MOVE`), which gives each page a
//! new index and anon_vma. A repair therefore takes a run of neighbours with equal attributes and
//! replaces them, piece by piece, with fresh mappings whose page offsets follow from their
//! addresses. Boundaries that serve a purpose (protection, files, gaps) are kept. [`merge_range`]
//! repairs the calling process, [`Remote`] another process.
//!
//! # Order of events
//! ```text
//!                          the calling process              another process
//! 1  entry points          in_process/mod.rs                remote/mod.rs
//! 2  plan                  plan.rs: runs of neighbours that only their pages keep separate
//! 3  prepare               in_process/executor.rs:          remote/session.rs: begins the journal,
//!                          descriptors, the watcher; once   injects the agent (remote/agent.rs)
//!                          for all plans, before the first
//! 4  next piece            driver.rs, sized by pace.rs, for a PieceExecutor:
//!                          InProcess                        RemoteExecutor
//!    read attributes       attributes.rs: flags and names that the program has changed
//!    exclude others        in_process/fork_gate.rs          remote/stop/ stops all threads
//!    make the calls        piece.rs, in_process/work.rs     piece.rs, by_move.rs, by_copy.rs
//!    during the calls      in_process/watch.rs: events      no thread runs
//!    move pages back       in_process/move_back.rs          remote/move_back.rs
//!    resume                the gate opens                   remote/injector.rs restores registers
//! 5  clean up              drop of InProcess                remote/session.rs, agent.rs
//! 6  after a crash         the process ended with us        remote/mod.rs: resume from the journal
//!                                                           after checks in remote/trust.rs
//! ```
//! The options and the results that the caller sees are defined in `report.rs` and `error.rs`. The
//! repairs that move no pages (guards, flags, empties, priming) are in `fixes.rs` and
//! `remote/fix.rs`.
//!
//! # Invariants
//! R1  A repair changes no byte that the program can read.
//! R2  A refused piece leaves the mappings unchanged, except for splits at the ends of the piece,
//!     which the kernel merges again.
//! R3  While pages are moved out, a repair uses no memory that it may move. Its tables are in
//!     shared memory; its heap may be moved, and is used only between pieces.
//!
//! # Linux
//! `mm/userfaultfd.c`, `fs/userfaultfd.c` and `mm/mremap.c`, 6.8 and later.
#![forbid(unsafe_code)]

mod attributes;
mod driver;
mod error;
mod fixes;
mod in_process;
mod pace;
mod piece;
mod plan;
mod proc_status;
mod remote;
mod report;

pub use driver::Progress;
pub use error::RepairError;
pub use fixes::{Fix, Fixed};
pub use in_process::{Merger, can_repair_itself, merge_range};
pub use remote::{Remote, Survey};
pub use report::{Kept, KeptReason, MadviseFlags, Options, Owner, Report, Way};
pub use vmarea_linux_sys::own_process::{NoSignals, file_of_program, separate_descriptors};
