//! Repair of live address spaces: neighbouring mappings that could be one become one.
//!
//! Linux never merges VMAs whose anon_vmas differ or whose page offsets are not contiguous. Since 6.8
//! user space can move pages between mappings (`UFFDIO_MOVE`), which gives each page a new index and
//! anon_vma. A repair therefore replaces a run of equal neighbours, piece by piece, with fresh
//! mappings whose page offset follows from their address. Boundaries with a purpose (protection,
//! files, gaps) stay. [`merge_range`] repairs the calling process, [`Remote`] another one.
//!
//! # Order of events
//! ```text
//!                          the calling process              another process
//! 1  enter                 in_process/mod.rs                remote/mod.rs
//! 2  prepare               in_process/executor.rs:          remote/session.rs: journal.rs, put the
//!                          descriptors, the watcher         agent into the process (remote/agent.rs)
//! 3  plan                  plan.rs: runs of neighbours that the core would merge but for their pages
//! 4  next piece            driver.rs, as large as pace.rs says, for a PieceExecutor:
//!                          InProcess                        RemoteMove or RemoteCopy
//!    close off             in_process/fork_gate.rs          remote/stop.rs stops all threads
//!    make calls            piece.rs, by in_process/work.rs  piece.rs, by remote/by_move.rs, by_copy.rs
//!    meanwhile             in_process/watch.rs answers      nobody runs
//!    bring home            in_process/move_back.rs          remote/move_back.rs
//!    let run               the gate opens                   remote/injector.rs: registers back
//! 5  clear up              drop of InProcess                remote/session.rs, agent.rs
//! 6  after a crash         the process has ended with us    remote/mod.rs: resume from the journal,
//!                                                           which remote/trust.rs checks first
//! ```
//! What the caller asks for and is told is in `report.rs` and `error.rs`; repairs that move nothing
//! (guards, flags, empties, priming) are in `fixes.rs` and `remote/fix.rs`.
//!
//! # Invariants
//! R1  no byte that the program can read differs from what it would have read without us
//! R2  a refusal leaves the mappings as they were, but for cuts at the ends of a piece, which
//!     the kernel joins again
//! R3  no memory that a repair works with is itself on its way: tables lie in shared memory
//!
//! # Linux
//! `mm/userfaultfd.c`, `fs/userfaultfd.c` and `mm/mremap.c`, 6.8 and later.
#![forbid(unsafe_code)]

mod driver;
mod error;
mod fixes;
mod in_process;
mod journal;
mod pace;
mod piece;
mod plan;
mod proc_status;
mod remote;
mod report;

pub use error::RepairError;
pub use fixes::{Fix, Fixed};
pub use in_process::{Merger, can_repair_itself, merge_range};
pub use remote::{Remote, Survey};
pub use report::{Hidden, Kept, Options, Owner, Reason, Report, Way};
pub use vmarea_linux_sys::own_process::{NoSignals, file_of_program, separate_descriptors};
