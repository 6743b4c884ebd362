//! One sequence, played on both sides in step.

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
use vmarea_trace::sysno;

/// More pages than this are not all compared after each step.
const MANY_PAGES: usize = 400;

/// Where the two sides part.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Number of the step.
    pub step: usize,
    /// What differs, as text.
    pub what: String,
    /// The kind of difference in few words, the same for the same cause.
    pub kind: String,
    /// Bytes that differ: the process, and where, as sequences name it.
    pub bytes_at: Option<(u8, u64)>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// May it change the address space of another process?
fn is_seen_by_all(op: &Op) -> bool {
    match op {
        Op::Fork { .. } | Op::Exit => true,
        Op::Call(call) => call.nr == sysno::IOCTL,
        _ => false,
    }
}

/// Has Linux refused a huge page by chance? It does where `ksmd` has made one of several of its pages.
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

/// Is a file mapped where there is room for huge pages? Pages that Linux maps around a fault make a
/// table there, and ours does not.
fn maps_a_file(op: &Op, kernel: Outcome) -> bool {
    const MAP_ANONYMOUS: u64 = 0x20;
    let Op::Call(call) = op else {
        return false;
    };
    let file = call.nr == sysno::MMAP && call.args[3] & MAP_ANONYMOUS == 0;
    !kernel.is_refused() && file && call.args[0].saturating_add(call.args[1]) > arena::HUGE
}

/// Both sides in the same state.
pub struct Pair<'a> {
    environment: &'a Environment,
    kernel: Kernel<'a>,
    /// Our side, for who chooses the next step.
    pub model: Model,
    seen: [SpaceState; PROCESSES],
    steps: usize,
    outcome: Outcome,
    fewer: FewerVmas,
    parted: bool,
    /// There was a file where huge pages have room.
    maps_files: bool,
}

impl<'a> Pair<'a> {
    /// Both sides at the beginning.
    ///
    /// # Errors
    /// Where Linux's side cannot be had.
    pub fn start(environment: &'a Environment) -> Result<Pair<'a>, KernelError> {
        let mut kernel = Kernel::start(&environment.eye, &environment.files)?;
        let view = kernel.view(0)?;
        let model = Model::new(
            environment.policy,
            environment.system,
            view,
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
            maps_files: false,
        })
    }

    /// Does a step on both sides and compares.
    ///
    /// # Errors
    /// Where Linux's side fails.
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

    /// Why both sides may rightly do different things at this step, if they may.
    fn parting(
        &mut self,
        step: &Step,
        before: Option<&(SpaceState, SpaceState)>,
        kernel: Outcome,
        ours: Outcome,
    ) -> Option<&'static str> {
        self.maps_files |= maps_a_file(&step.op, kernel);
        if self.maps_files && is_collapse(&step.op) && kernel != ours {
            return Some("MADV_COLLAPSE where a fault has mapped pages of a file around it");
        }
        if is_busy(&step.op, kernel) {
            return Some("MADV_COLLAPSE that finds pages busy");
        }
        let (kernel_before, ours_before) = before?;
        let before = self.before((kernel_before, ours_before));
        superset::reaches_further(step, kernel, &before).or_else(|| {
            let differ = kernel != ours;
            differ.then(|| superset::explanation(step, kernel, ours, &before))?
        })
    }

    /// From here on the two do different things, for a reason that is counted.
    fn part(&mut self, how: &str) {
        *self.fewer.results.entry(how.to_owned()).or_default() += 1;
        self.parted = true;
    }

    /// True where Linux has done something else, for a reason that is counted: the sequence ends.
    pub fn has_parted(&self) -> bool {
        self.parted
    }

    /// Where ours had fewer VMAs.
    pub fn fewer(&self) -> &FewerVmas {
        &self.fewer
    }

    /// Compares every byte of every process, also of what is swapped out.
    ///
    /// # Errors
    /// Where Linux's side fails.
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

    /// What the last step came to on Linux.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Does a step on Linux's side alone.
    ///
    /// # Errors
    /// Where that fails.
    pub fn ask(&mut self, step: &Step) -> Result<Outcome, KernelError> {
        self.kernel.apply(step)
    }

    /// What each process of Linux's side has mapped, as [`SpaceState::listed`] lists it.
    ///
    /// # Errors
    /// Where the kernel does not show it.
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

    /// Which anon_vmas the processes of Linux's side have, as [`SpaceState::anon_vmas`] lists them; empty
    /// where the kernel does not show it.
    ///
    /// # Errors
    /// Where a process cannot be looked at.
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
        for process in 0..PROCESSES {
            if self.model.mm(process).is_none() {
                continue;
            }
            if all || process == acting || self.steps.is_multiple_of(16) {
                self.seen[process] = self.kernel.state(process)?;
            }
            let mut kernel = self.seen[process].clone();
            let ours = self.model.state(process);
            if !(all || process == acting) {
                // Others' counts may have changed since that process was looked at.
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

    /// All pages of a process, or of very many each at every eighth step.
    fn pages_to_compare(&self, process: usize, look: Look) -> Vec<u64> {
        let mut pages = self.model.present(process, look);
        if pages.len() > MANY_PAGES && look == Look::InMemory {
            let turn = self.steps as u64;
            pages.retain(|page| (page >> PAGE_SHIFT).wrapping_add(turn).is_multiple_of(8));
        }
        pages
    }

    /// The first bytes that differ: where, as sequences name it, and what they are.
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

/// Plays a sequence from the beginning; gives the first difference.
///
/// # Errors
/// Where Linux's side fails.
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
