//! The family of processes in the running kernel.

use vmarea::types::call_flags::Prot;
use vmarea::types::{PAGE_SHIFT, PAGE_SIZE};
use vmarea_oracle::{Access, Oracle, OracleError};
use vmarea_process::view::{KernelView, View, ViewError};
use vmarea_report::graph::Graph;
use vmarea_report::graph::family::{NAMES, READ_WRITE, STEPS, Step, WINDOW, anonymous, name_at};
use vmarea_report::graph::kernel::{self, NamedVma};
use vmarea_trace::sysno;

/// Reason why the kernel's graph cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// The kernel rejected a step.
    #[error("the kernel refuses {0:?}: error {1}")]
    Refused(Step, i32),
    /// The test processes failed.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// The kernel's data about the test processes cannot be read.
    #[error(transparent)]
    View(#[from] ViewError),
}

/// Builds the graph of the family with real processes.
///
/// # Errors
/// Any rejected step, or a failure to read the kernel view.
pub fn in_kernel(eye: &KernelView) -> Result<Graph, GraphError> {
    let mut oracle = Oracle::start()?;
    for step in STEPS {
        if let Err(errno) = kernel_step(&mut oracle, step)? {
            return Err(GraphError::Refused(step, errno));
        }
    }
    let mut processes = Vec::new();
    let mut view = View::default();
    for (process, name) in NAMES.iter().enumerate() {
        let pid = oracle.pid(process).ok_or(OracleError::NoProcess(process))?;
        eye.read(pid, &mut view)?;
        let shown = view
            .vmas
            .iter()
            .filter(|v| v.start >= WINDOW.start && v.end <= WINDOW.end);
        let vmas = shown.map(|vma| NamedVma {
            name: name_at(vma.start),
            vma: *vma,
        });
        processes.push(((*name).to_owned(), process.checked_sub(1), vmas.collect()));
    }
    Ok(kernel::graph("the running kernel", processes))
}

fn kernel_step(oracle: &mut Oracle, step: Step) -> Result<Result<(), i32>, OracleError> {
    let no_file = u64::MAX;
    let (process, number, args) = match step {
        Step::Map(process, place) => {
            let len = place.pages << PAGE_SHIFT;
            let flags = anonymous().bits().into();
            let args = [
                place.start,
                len,
                READ_WRITE.bits().into(),
                flags,
                no_file,
                0,
            ];
            (process, sysno::MMAP, args)
        }
        Step::Protect(process, addr) => {
            let args = [addr, 2 * PAGE_SIZE, Prot::READ.bits().into(), 0, 0, 0];
            (process, sysno::MPROTECT, args)
        }
        Step::Unmap(process, place) => {
            let args = [place.start, place.pages << PAGE_SHIFT, 0, 0, 0, 0];
            (process, sysno::MUNMAP, args)
        }
        Step::Write(process, addr) => {
            return Ok(match oracle.write(process, addr, 1)? {
                Access::Done(_) => Ok(()),
                Access::Signal { signal, .. } => Err(signal),
            });
        }
        Step::Fork(process, child) => return oracle.fork(process, child),
    };
    let result = oracle.call(process, number.into(), args)?;
    Ok(result.map(|_| ()))
}
