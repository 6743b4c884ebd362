//! Repairs a live address space: merges neighbouring mappings that could be one mapping.
//!
//! Linux never merges VMAs whose anon_vmas differ or whose page offsets are not contiguous. User
//! space can take the pages out of such VMAs, let the kernel join what is empty, and put the pages
//! back (`UFFDIO_MOVE`, since Linux 6.8), which gives each page a new index and anon_vma. A repair
//! does so for a run of neighbours with equal attributes, piece by piece. Boundaries that serve a
//! purpose (protection, files, gaps) are kept. [`merge_range`] repairs memory that the caller owns,
//! [`Remote`] another process.
//!
//! # Order of events
//! ```text
//!                          the calling process              another process
//! 1  entry points          in_process/mod.rs                remote/mod.rs
//! 2  plan                  plan.rs: runs of neighbours that only their pages keep separate
//! 3  prepare               in_process/executor.rs:          remote/tracer.rs: a child that traces;
//!                          descriptors, the watcher; once   remote/session.rs: mark, scratch area
//!                          for all plans, before the first
//! 4  next piece            driver.rs, sized by pace.rs, for a PieceExecutor:
//!                          InProcess                        RemoteExecutor
//!    exclude others        in_process/fork_gate.rs          remote/stop.rs stops all threads,
//!                                                           remote/agent.rs parks them
//!    make the calls        piece.rs, in_process/work.rs     remote/program.rs, which an agent executes
//!    during the calls      in_process/watch.rs: events      no thread of the program runs
//!    move pages back       in_process/move_back.rs          the agent
//!    resume                the gate opens                   remote/stop.rs
//! 5  clean up              drop of InProcess                remote/session.rs
//! 6  after a crash         the process ended with us        the agent finishes; remote/session.rs sweeps
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
mod keep;
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
pub use keep::{KEEP_VARIABLE, start_keeper};
pub use remote::{Remote, Survey};
pub use report::{Kept, KeptReason, MadviseFlags, Options, Report, Way};
pub use vmarea_linux_sys::own_process::separate_descriptors;
