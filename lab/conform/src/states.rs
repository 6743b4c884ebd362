//! File of the steps of a run and of the VMAs after each step, for a replay by another program.
//!
//! `ci/run branches` replays this file in Linux's `mm/vma.c`, compiled for user space. A step that
//! showed a difference between the kernel and the core is not written, so every list in the file is
//! the kernel's. What the kernel does not show, such as the kind of a file, is the core's.
//!
//! Each line begins with a letter. Numbers are hexadecimal, and addresses are real ones:
//!
//! ```text
//! S SEED LIMIT                   a sequence, under this `vm.max_map_count`
//! X PROCESS RESULT NAME NUMBER... [: WORD...]
//!                                a step; RESULT is v, e or s and a number: value, errno, signal
//! P PROCESS DEF_FLAGS START_BRK BRK HEAD TAIL N
//!                                a process has changed: its list begins with HEAD VMAs of the last
//!                                one, ends with TAIL of them, and has N between, which follow
//! V START END FLAGS PGOFF ANON_VMA SINGULAR FILE KIND POLICY USERFAULTFD
//! E PROCESS                      the process has ended
//! ```

use super::model::Model;
use super::op::{Op, Places, Step};
use super::outcome::Outcome;
use super::sequence::Pair;
use super::watch::Watch;
use std::fmt;
use std::io::{self, Write};
use vmarea::types::FileKind;
use vmarea::vma::VmaView;
use vmarea_oracle::PROCESSES;

/// Writer of the file.
pub struct States {
    out: Box<dyn Write>,
    last: [Option<Listed>; PROCESSES],
}

/// A VMA, as the numbers of its line.
type Line = [u64; 10];

/// An address space: default flags, start and end of the heap, VMAs.
#[derive(PartialEq, Eq, Default)]
struct Listed([u64; 3], Vec<Line>);

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("States").finish_non_exhaustive()
    }
}

impl States {
    /// Creates a writer without a sequence.
    pub fn new(out: Box<dyn Write>) -> States {
        States {
            out,
            last: Default::default(),
        }
    }

    /// Begins a sequence with the initial state of `model`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn begin(&mut self, seed: u64, model: &Model) -> io::Result<()> {
        let limit = model.machine().space().system().max_map_count;
        self.last = Default::default();
        writeln!(self.out, "S {seed:x} {limit:x}")?;
        self.lists(model)
    }

    /// Writes a step with its result, and the lists that it has changed.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn step(&mut self, step: &Step, outcome: Outcome, model: &Model) -> io::Result<()> {
        let result = match outcome {
            Outcome::Value(value) => format!("v{:x}", model.places().placed(value)),
            Outcome::Errno(errno) => format!("e{errno:x}"),
            Outcome::Signal(signal, _) => format!("s{signal:x}"),
            Outcome::Impossible => return Ok(()),
        };
        write!(self.out, "X {:x} {result} ", step.process)?;
        self.action(&step.op, model.places())?;
        self.lists(model)
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn action(&mut self, op: &Op, places: Places) -> io::Result<()> {
        match op {
            Op::Call(call) => {
                write!(self.out, "{}", super::op::name(call.nr))?;
                for arg in call.placed(places) {
                    write!(self.out, " {arg:x}")?;
                }
                if !call.data.is_empty() {
                    write!(self.out, " :")?;
                }
                for word in call.placed_data(places) {
                    write!(self.out, " {word:x}")?;
                }
                writeln!(self.out)
            }
            Op::Read { addr } => writeln!(self.out, "touch {:x} 0", places.placed(*addr)),
            Op::Write { addr, .. } => writeln!(self.out, "touch {:x} 1", places.placed(*addr)),
            Op::Fork { child } => writeln!(self.out, "fork {child:x}"),
            Op::Exit => writeln!(self.out, "exit"),
            Op::Fill { leave } => writeln!(self.out, "fill {leave:x}"),
            Op::Background(_) => writeln!(self.out, "background"),
        }
    }

    /// Writes the list of each process whose list has changed.
    fn lists(&mut self, model: &Model) -> io::Result<()> {
        for process in 0..PROCESSES {
            let mm = model.mm(process);
            let Some(r) = mm.and_then(|mm| model.machine().space().mmap_read_lock(mm)) else {
                if self.last[process].take().is_some() {
                    writeln!(self.out, "E {process:x}")?;
                }
                continue;
            };
            let s = r.state();
            let numbers = [s.def_flags.bits(), s.layout.start_brk, s.layout.brk];
            let new = Listed(numbers, r.vmas().map(|v| line(&v)).collect());
            if self.last[process].as_ref() != Some(&new) {
                let old = self.last[process].take().unwrap_or_default();
                self.list(process, &old.1, &new)?;
            }
            self.last[process] = Some(new);
        }
        Ok(())
    }

    fn list(&mut self, process: usize, old: &[Line], new: &Listed) -> io::Result<()> {
        let Listed([def_flags, start_brk, brk], new) = new;
        let head = common(old.iter().zip(new));
        let tail = common(old[head..].iter().rev().zip(new[head..].iter().rev()));
        let changed = &new[head..new.len() - tail];
        writeln!(
            self.out,
            "P {process:x} {def_flags:x} {start_brk:x} {brk:x} {head:x} {tail:x} {:x}",
            changed.len()
        )?;
        for numbers in changed {
            write!(self.out, "V")?;
            for number in numbers {
                write!(self.out, " {number:x}")?;
            }
            writeln!(self.out)?;
        }
        Ok(())
    }
}

impl Watch for States {
    fn begin(&mut self, seed: u64, pair: &Pair<'_>) -> io::Result<()> {
        States::begin(self, seed, &pair.model)
    }

    fn step(&mut self, step: &Step, pair: &Pair<'_>) -> io::Result<()> {
        States::step(self, step, pair.outcome(), &pair.model)
    }
}

/// Returns how many pairs at the beginning are equal.
fn common<'l>(pairs: impl Iterator<Item = (&'l Line, &'l Line)>) -> usize {
    pairs.take_while(|(a, b)| a == b).count()
}

fn line(v: &VmaView) -> Line {
    let file = v.body.file;
    let named = file.filter(|f| !matches!(f.kind, FileKind::Special));
    [
        v.range.start,
        v.range.end,
        v.body.flags.bits(),
        v.pgoff().0,
        v.anon_vma.map_or(0, |a| a.to_bits()),
        v.chain_singular.into(),
        named.map_or(0, |f| f.id.0),
        file.map_or(0, |f| kind(f.kind)),
        v.body.policy.into(),
        v.body.uffd.into(),
    ]
}

/// Returns the number of a kind of file; 0 means no file.
fn kind(kind: FileKind) -> u64 {
    match kind {
        FileKind::Regular | FileKind::RegularHugeAligned | FileKind::Device => 1,
        FileKind::Shmem => 2,
        FileKind::SharedAnon => 3,
        FileKind::SysvShm => 4,
        FileKind::Hugetlb => 5,
        FileKind::DevZero => 6,
        FileKind::Special => 7,
        FileKind::Secret => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::super::op::Call;
    use super::*;
    use vmarea::policy::Policy;
    use vmarea_trace::sysno;

    #[test]
    fn a_step_is_followed_by_what_it_changed() {
        let mut model = Model::alone(Policy::by_name("linux").unwrap(), false).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut states = States::new(Box::new(file.reopen().unwrap()));
        states.begin(7, &model).unwrap();
        let mut take = |process, op| {
            let step = Step { process, op };
            let outcome = model.apply(&step);
            states.step(&step, outcome, &model).unwrap();
        };
        let map = [0x10_0000_0000, 0x3000, 3, 0x32, u64::MAX, 0];
        let middle = [0x10_0000_1000, 0x1000, 1];
        take(0, Op::Call(Call::new(sysno::MMAP, map)));
        take(0, Op::Call(Call::new(sysno::MPROTECT, middle)));
        let addr = 0x10_0000_0000;
        take(0, Op::Read { addr });
        take(0, Op::Fork { child: 2 });
        take(2, Op::Exit);
        let text = std::fs::read_to_string(file.path()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("S 7 "), "{text}");
        // Three special mappings are above the arena.
        let after: Vec<&str> = lines[5..].to_vec();
        let heap = "0 555555550000 555555550000";
        let rest = [
            "X 0 v1000000000 mmap 1000000000 3000 3 32 ffffffffffffffff 0".to_owned(),
            format!("P 0 {heap} 0 3 1"),
            "V 1000000000 1000003000 100073 1000000 0 1 0 0 0 0".to_owned(),
            "X 0 v0 mprotect 1000001000 1000 1 0 0 0".to_owned(),
            format!("P 0 {heap} 0 3 3"),
            "V 1000000000 1000001000 100073 1000000 0 1 0 0 0 0".to_owned(),
            "V 1000001000 1000002000 71 1000001 0 1 0 0 0 0".to_owned(),
            "V 1000002000 1000003000 100073 1000002 0 1 0 0 0 0".to_owned(),
            "X 0 v0 touch 1000000000 0".to_owned(),
            "X 0 v0 fork 2".to_owned(),
            format!("P 2 {heap} 0 0 6"),
        ];
        assert_eq!(after[..rest.len()], rest, "{text}");
        assert_eq!(after[after.len() - 2..], ["X 2 v0 exit", "E 2"], "{text}");
    }
}
