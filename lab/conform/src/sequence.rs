//! Executes one sequence on the kernel and in the core, step by step.

use super::arena;
use super::environment::Environment;
use super::kernel::{Kernel, KernelError};
use super::model::{Look, Model};
use super::op::{Op, Step};
use super::outcome::Outcome;
use super::state::{Pairings, SpaceState, compare};
use super::superset::{self, Before, Comparison, FewerVmas};
use serde::Serialize;
use std::fmt;
use vmarea::types::{PAGE_SHIFT, PAGE_SIZE};
use vmarea_oracle::PROCESSES;
use vmarea_process::view::View;
use vmarea_trace::sysno;

/// Maximum number of pages for which all bytes are compared after each step.
const MANY_PAGES: usize = 400;

/// First difference between the kernel and the core.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Difference {
    /// Index of the step.
    pub step: usize,
    /// Description of the difference.
    pub what: String,
    /// Short name of the kind of difference; the same for differences with the same cause.
    pub kind: String,
    /// Process and symbolic address of the bytes that differ.
    pub bytes_at: Option<(u8, u64)>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// Returns true if the action can change the address space of another process.
fn is_seen_by_all(op: &Op) -> bool {
    match op {
        Op::Fork { .. } | Op::Exit => true,
        Op::Call(call) => call.nr == sysno::IOCTL,
        _ => false,
    }
}

/// Legitimate reasons for a result that is not Linux's, from what a sequence has done so far.
#[derive(Debug, Default)]
pub(super) struct Excuses {
    /// True if a file was mapped in an area large enough for huge pages.
    maps_files: bool,
}

impl Excuses {
    /// Returns the reason why the results of a step need not be equal, if there is one.
    pub(super) fn of(
        &mut self,
        step: &Step,
        kernel: Outcome,
        ours: Outcome,
    ) -> Option<&'static str> {
        self.maps_files |= maps_a_file(&step.op, kernel);
        if self.maps_files && is_collapse(&step.op) && kernel != ours {
            return Some("MADV_COLLAPSE where a fault has mapped pages of a file around it");
        }
        is_busy(&step.op, kernel).then_some("MADV_COLLAPSE that finds pages busy")
    }
}

/// Returns true if Linux happened to refuse a collapse into a huge page.
///
/// Linux returns EAGAIN if `ksmd` has merged some of the pages, which is a matter of timing.
fn is_busy(op: &Op, kernel: Outcome) -> bool {
    const EAGAIN: Outcome = Outcome::Errno(11);
    kernel == EAGAIN && is_collapse(op)
}

fn is_collapse(op: &Op) -> bool {
    const MADV_COLLAPSE: u64 = 25;
    match op {
        Op::Call(call) => call.nr == sysno::MADVISE && call.args[2] == MADV_COLLAPSE,
        _ => false,
    }
}

/// Returns true if the call maps a file in an area large enough for huge pages.
///
/// On a fault, Linux also maps the surrounding pages, and thereby creates a page table in the area;
/// the core does not.
fn maps_a_file(op: &Op, kernel: Outcome) -> bool {
    const MAP_ANONYMOUS: u64 = 0x20;
    let Op::Call(call) = op else {
        return false;
    };
    let file = call.nr == sysno::MMAP && call.args[3] & MAP_ANONYMOUS == 0;
    !kernel.is_refused() && file && call.args[0].saturating_add(call.args[1]) > arena::HUGE
}

/// The kernel's side and the core's side of a sequence, which must stay in the same state.
pub struct Pair<'a> {
    environment: &'a Environment,
    kernel: Kernel<'a>,
    /// The core's side, which the generator reads to choose the next step.
    pub model: Model,
    seen: [SpaceState; PROCESSES],
    steps: usize,
    outcome: Outcome,
    fewer: FewerVmas,
    parted: bool,
    excuses: Excuses,
    /// The first process's list at the start.
    view: View,
    /// Processes whose lists were read after the last step.
    read: Vec<usize>,
}

impl<'a> Pair<'a> {
    /// Creates the kernel's side and the core's side in their initial state.
    ///
    /// # Errors
    /// If the kernel side cannot be started.
    pub fn start(environment: &'a Environment) -> Result<Pair<'a>, KernelError> {
        let mut kernel = Kernel::start(&environment.eye, &environment.files)?;
        let view = kernel.view(0)?.clone();
        let model = Model::new(
            environment.policy,
            environment.system,
            &view,
            environment.limits,
        )
        .expect("a kernel's list of VMAs is in order");
        Ok(Pair {
            environment,
            kernel,
            model,
            seen: Default::default(),
            steps: 0,
            outcome: Outcome::Impossible,
            fewer: FewerVmas::default(),
            parted: false,
            excuses: Excuses::default(),
            view,
            read: Vec::new(),
        })
    }

    /// Executes a step in the kernel and in the core, and compares the results and states.
    ///
    /// # Errors
    /// If the kernel side fails.
    pub fn step(&mut self, step: &Step) -> Result<Option<Difference>, KernelError> {
        let number = self.steps;
        self.steps += 1;
        let acting = usize::from(step.process);
        let before = (self.environment.comparison == Comparison::FewerVmas)
            .then(|| (self.seen[acting].clone(), self.model.state(acting)));
        let kernel = self.kernel.apply(step)?;
        self.outcome = kernel;
        let ours = self.model.apply(step);
        if kernel == Outcome::Impossible && ours == Outcome::Impossible {
            return Ok(None);
        }
        if let Some(how) = self.parting(step, before.as_ref(), kernel, ours) {
            self.part(how);
            return Ok(None);
        }
        if kernel != ours {
            return Ok(Some(Difference {
                step: number,
                what: format!("result differs\n  Linux   {kernel}\n  vmarea  {ours}"),
                kind: format!("{}: result {kernel} / {ours}", step.op.name()),
                bytes_at: None,
            }));
        }
        let all = is_seen_by_all(&step.op);
        if let Some((process, found)) = self.compare_spaces(acting, all)? {
            let kind = format!("{}: {}", step.op.name(), found.what);
            return Ok(Some(Difference {
                step: number,
                what: format!("process {process}: {found}"),
                kind,
                bytes_at: None,
            }));
        }
        if let Some((addr, what)) = self.compare_bytes(acting, Look::InMemory)? {
            return Ok(Some(Difference {
                step: number,
                what: format!("process {acting}: {addr:#x} differs\n{what}"),
                kind: format!("{}: bytes", step.op.name()),
                bytes_at: Some((step.process, addr)),
            }));
        }
        Ok(None)
    }

    fn before<'s>(&'s self, (kernel, ours): (&'s SpaceState, &'s SpaceState)) -> Before<'s> {
        Before {
            kernel,
            ours,
            limit: self.environment.system.max_map_count.into(),
            places: self.model.places(),
            policy: &self.environment.policy,
        }
    }

    /// Returns a legitimate reason for the two sides to differ at this step, if there is one.
    fn parting(
        &mut self,
        step: &Step,
        before: Option<&(SpaceState, SpaceState)>,
        kernel: Outcome,
        ours: Outcome,
    ) -> Option<&'static str> {
        let excuse = self.excuses.of(step, kernel, ours);
        if excuse.is_some() {
            return excuse;
        }
        let (kernel_before, ours_before) = before?;
        let before = self.before((kernel_before, ours_before));
        superset::reaches_further(step, kernel, &before).or_else(|| {
            let differ = kernel != ours;
            differ.then(|| superset::explanation(step, kernel, ours, &before))?
        })
    }

    /// Counts the reason for a legitimate difference and marks the sequence as diverged.
    fn part(&mut self, how: &str) {
        *self.fewer.results.entry(how.to_owned()).or_default() += 1;
        self.parted = true;
    }

    /// Returns true if the sides differ for a legitimate, counted reason; the sequence then ends.
    pub fn has_parted(&self) -> bool {
        self.parted
    }

    /// Returns the statistics on cases in which the core has fewer VMAs.
    pub fn fewer(&self) -> &FewerVmas {
        &self.fewer
    }

    /// Compares every byte of every process, including swapped-out pages.
    ///
    /// # Errors
    /// If the kernel side fails.
    pub fn finish(&mut self) -> Result<Option<Difference>, KernelError> {
        for process in 0..PROCESSES {
            if self.parted {
                break;
            }
            if let Some((addr, what)) = self.compare_bytes(process, Look::All)? {
                return Ok(Some(Difference {
                    step: self.steps.saturating_sub(1),
                    what: format!("process {process}: {addr:#x} differs at the end\n{what}"),
                    kind: "at the end: bytes".to_owned(),
                    bytes_at: Some((process as u8, addr)),
                }));
            }
        }
        Ok(None)
    }

    /// Returns the result of the last step on Linux.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Returns the first process's mappings at the start.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns the address spaces that were read after the last step, by process.
    pub fn seen(&self) -> Vec<(usize, SpaceState)> {
        let read = self.read.iter();
        read.map(|&process| (process, self.seen[process].clone()))
            .collect()
    }

    /// Executes a step on the kernel's side only.
    ///
    /// # Errors
    /// If the kernel side fails.
    pub fn ask(&mut self, step: &Step) -> Result<Outcome, KernelError> {
        self.kernel.apply(step)
    }

    /// Returns the mappings of each process on the kernel, in the form of [`SpaceState::listed`].
    ///
    /// # Errors
    /// If the kernel does not provide the view.
    pub fn mapped(&mut self) -> Result<Vec<(u8, Vec<String>)>, KernelError> {
        let mut all = Vec::new();
        for process in 0..PROCESSES {
            if self.kernel.is_there(process) {
                all.push((
                    process as u8,
                    self.kernel.state(process)?.listed(self.model.places()),
                ));
            }
        }
        Ok(all)
    }

    /// Returns the anon_vmas of each existing process, as read from the running kernel.
    ///
    /// The list is empty if the kernel does not show anon_vmas.
    ///
    /// # Errors
    /// If the kernel does not provide the view of a process.
    pub fn anon_vmas(&mut self) -> Result<Vec<(u8, Vec<String>)>, KernelError> {
        let mut known = Vec::new();
        let mut all = Vec::new();
        for process in 0..PROCESSES {
            if self.kernel.is_there(process) {
                let state = self.kernel.state(process)?;
                all.push((
                    process as u8,
                    state.anon_vmas(self.model.places(), &mut known),
                ));
            }
        }
        Ok(if known.is_empty() { Vec::new() } else { all })
    }

    fn compare_spaces(
        &mut self,
        acting: usize,
        all: bool,
    ) -> Result<Option<(usize, super::state::StateDifference)>, KernelError> {
        let mut pairings = Pairings::default();
        self.read.clear();
        for process in 0..PROCESSES {
            if self.model.mm(process).is_none() {
                continue;
            }
            if all || process == acting || self.steps.is_multiple_of(16) {
                self.seen[process] = self.kernel.state(process)?;
                self.read.push(process);
            }
            let mut kernel = self.seen[process].clone();
            let ours = self.model.state(process);
            if !(all || process == acting) {
                // The view of another process is older, and its counts may be out of date.
                for vma in &mut kernel.vmas {
                    (vma.num_children, vma.num_active_vmas) = (None, None);
                }
            }
            let compared = match self.environment.comparison {
                Comparison::Exact => compare(&kernel, &ours, &mut pairings, |addr| {
                    self.model.is_initial(addr)
                }),
                Comparison::FewerVmas => {
                    superset::compare(&kernel, &ours, &mut pairings, &mut self.fewer)
                }
            };
            if let Err(difference) = compared {
                return Ok(Some((process, difference)));
            }
        }
        Ok(None)
    }

    /// Returns the present pages to compare in this step: all, or an eighth if there are many.
    fn pages_to_compare(&self, process: usize, look: Look) -> Vec<u64> {
        let mut pages = self.model.present(process, look);
        if pages.len() > MANY_PAGES && look == Look::InMemory {
            let turn = self.steps as u64;
            pages.retain(|page| (page >> PAGE_SHIFT).wrapping_add(turn).is_multiple_of(8));
        }
        pages
    }

    /// Returns the symbolic address and a description of the first bytes that differ.
    fn compare_bytes(
        &self,
        process: usize,
        look: Look,
    ) -> Result<Option<(u64, String)>, KernelError> {
        if self.model.mm(process).is_none() {
            return Ok(None);
        }
        let pages = self.pages_to_compare(process, look);
        if pages.is_empty() {
            return Ok(None);
        }
        let kernel = match self.kernel.pages(process, &pages) {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Some((pages[0], format!("  Linux   {error}")))),
        };
        for (index, page) in pages.iter().enumerate() {
            let ours = self.model.page(process, *page);
            let at = index * PAGE_SIZE as usize;
            let Some(theirs) = kernel.get(at..at + PAGE_SIZE as usize) else {
                return Ok(Some((*page, "  Linux   cannot be read".to_owned())));
            };
            if theirs != ours {
                let at = (0..ours.len()).find(|&n| ours[n] != theirs[n]).unwrap_or(0) & !7;
                let show = |b: &[u8]| {
                    b[at..at + 8]
                        .iter()
                        .rev()
                        .fold(String::new(), |s, b| s + &format!("{b:02x}"))
                };
                let what = format!(
                    "  Linux   {} at {at:#x}\n  vmarea  {} at {at:#x}",
                    show(theirs),
                    show(&ours)
                );
                let addr = self.model.places().named(page + at as u64);
                return Ok(Some((addr, what)));
            }
        }
        Ok(None)
    }
}

/// Executes a sequence from the initial state and returns the first difference.
///
/// # Errors
/// If the kernel side fails.
pub fn play(environment: &Environment, steps: &[Step]) -> Result<Option<Difference>, KernelError> {
    environment
        .files
        .reset()
        .map_err(|e| KernelError::Oracle(vmarea_oracle::OracleError::Start(e)))?;
    let mut pair = Pair::start(environment)?;
    for step in steps {
        if let Some(difference) = pair.step(step)? {
            return Ok(Some(difference));
        }
        if pair.has_parted() {
            return Ok(None);
        }
    }
    pair.finish()
}
