//! Generator of steps.
//!
//! The generator is deterministic: its seed and the core's state determine each step. Weights
//! favour steps that cause merges and splits, for example few kinds of protection, ranges that
//! begin or end at a VMA boundary, new mappings adjacent to old ones, and moves back to an earlier
//! address. A small share of arguments is invalid.

mod calls;
mod edges;
mod files;
mod pages;
mod process;
mod special;
mod theme;
mod userfault;

use super::arena::{self, DEEP, DEEP_PAGES, HEAP, HEAP_END, HUGE, HUGE_SLOTS, PAGES, START};
use super::model::{Mapped, Model};
use super::op::{Call, Op, Step};
use super::rng::Rng;
use theme::Theme;
use vmarea::types::{PAGE_SIZE, PMD_SIZE};
use vmarea_oracle::PROCESSES;

const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;
const PROT_EXEC: u64 = 4;

/// Kind of step with its weight.
struct Kind {
    weight: u32,
    make: fn(&mut Choice<'_>) -> Op,
}

const fn kind(weight: u32, make: fn(&mut Choice<'_>) -> Op) -> Kind {
    Kind { weight, make }
}

const KINDS: &[Kind] = &[
    kind(160, calls::mmap),
    kind(30, calls::mmap_file),
    kind(15, calls::mmap_odd),
    kind(80, calls::munmap),
    kind(160, calls::mprotect),
    kind(120, calls::mremap),
    kind(80, calls::madvise_flags),
    kind(60, calls::madvise_pages),
    kind(40, calls::mlock),
    kind(10, calls::mlockall),
    kind(25, process::brk),
    kind(3, calls::mmap_anywhere),
    kind(5, process::mseal),
    kind(4, process::prctl),
    kind(6, process::pkeys),
    kind(6, process::truncate),
    kind(24, edges::edge),
    kind(6, special::low_hint),
    kind(6, special::special),
    kind(4, special::huge_file),
    kind(8, special::secret),
    kind(25, process::mbind),
    kind(4, process::remap_file_pages),
    kind(10, process::process_madvise),
    kind(12, process::limit),
    kind(10, userfault::userfaultfd),
    kind(10, process::shmat),
    kind(5, process::shmdt),
    kind(1, process::drop_rights),
    kind(120, process::read),
    kind(240, process::write),
    kind(20, process::fork),
    kind(10, process::exit),
];

const PAGE_KINDS: &[Kind] = &[
    kind(120, pages::background),
    kind(40, pages::mergeable),
    kind(120, pages::write_equal),
    kind(30, pages::page_out),
];

const HUGE_KINDS: &[Kind] = &[
    kind(150, pages::mmap_huge),
    kind(30, pages::mmap_pool),
    kind(150, pages::advise_huge),
    kind(60, pages::madvise_huge),
    kind(100, pages::collapse),
    kind(40, pages::discard_slots),
    kind(250, pages::touch_huge),
    kind(150, pages::cut_huge),
    kind(25, pages::thp_disable),
    kind(10, pages::background),
];

const FILE_KINDS: &[Kind] = &[
    kind(250, files::mmap_private),
    kind(150, files::move_private),
    kind(150, files::write_private),
    kind(20, files::merge_equal_pages),
    kind(20, files::seal_private),
    kind(40, files::discard_private),
];

const LIMIT_KINDS: &[Kind] = &[kind(400, calls::mremap)];

const USERFAULT_KINDS: &[Kind] = &[
    kind(150, userfault::watch),
    kind(80, userfault::move_watched),
];

/// Returns the kinds of step that a theme adds.
fn more_kinds(theme: Theme) -> &'static [Kind] {
    match theme {
        Theme::Plain => &[],
        Theme::Limit => LIMIT_KINDS,
        Theme::Files => FILE_KINDS,
        Theme::Userfault => USERFAULT_KINDS,
        Theme::Pages => PAGE_KINDS,
        Theme::Huge | Theme::Pool => HUGE_KINDS,
    }
}

/// Features that generated steps may use.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Hard limits on data, stack, locked memory and address space.
    pub hard: [u64; 4],
    /// True if a userfaultfd is available.
    pub userfaultfd: bool,
    /// True if System V shared memory segments are available.
    pub segments: bool,
    /// True if the machine's pool has enough huge pages for all processes.
    pub hugetlb: bool,
    /// True if a hugetlb file is available, whether or not the pool has pages for it.
    pub huge_file: bool,
    /// True if a `memfd_secret` is available.
    pub secret: bool,
    /// True if a page of secret memory counts against the user's limit on locked memory when it is
    /// made, which the core does not model. A sequence then has either secret memory or such a limit.
    pub secret_counts: bool,
    /// True if special mappings can be unmapped and moved only as a whole.
    ///
    /// Before 5.11 special mappings can be split, and the parts behave in ways that the core does
    /// not model.
    pub special: bool,
    /// True if KSM has no visible effect in areas with huge pages.
    ///
    /// Before 6.18 KSM has a visible effect there, because `MADV_COLLAPSE` requires writable pages.
    pub merges_huge: bool,
}

impl Facts {
    /// All features.
    pub const ALL: Facts = Facts {
        hard: [u64::MAX; 4],
        userfaultfd: true,
        segments: true,
        hugetlb: true,
        huge_file: true,
        secret: true,
        secret_counts: false,
        special: true,
        merges_huge: true,
    };
}

/// Generator of the steps of one sequence.
#[derive(Debug)]
pub struct Generator {
    rng: Rng,
    theme: Theme,
    last: Option<(u64, u64)>,
    facts: Facts,
    begun: bool,
}

/// Data on which the choice of one step depends.
struct Choice<'a> {
    rng: &'a mut Rng,
    theme: Theme,
    last: &'a mut Option<(u64, u64)>,
    vmas: Vec<Mapped>,
    model: &'a Model,
    process: usize,
    alive: [bool; PROCESSES],
    brk: u64,
    counts: [u64; 3],
    facts: Facts,
}

impl Generator {
    /// Creates the generator for a seed.
    pub fn new(seed: u64, facts: Facts) -> Generator {
        let mut rng = Rng::new(seed);
        Generator::led_by(Theme::choose(&mut rng), rng, facts)
    }

    /// Creates the generator whose choices are read from `bytes`.
    pub fn of_bytes(bytes: &[u8]) -> Generator {
        let mut rng = Rng::of_bytes(bytes);
        let theme = match Theme::choose(&mut rng) {
            // This theme is too slow for fuzzing, which executes a thousand inputs per second.
            Theme::Limit => Theme::Plain,
            theme => theme,
        };
        Generator::led_by(theme, rng, Facts::ALL)
    }

    fn led_by(theme: Theme, mut rng: Rng, mut facts: Facts) -> Generator {
        if facts.secret_counts {
            facts.secret &= rng.chance(1, 2);
        }
        Generator {
            theme,
            rng,
            last: None,
            facts,
            begun: false,
        }
    }

    /// Returns the number of steps in the sequence; a sequence with slow steps has fewer.
    pub fn steps(&self) -> usize {
        self.theme.steps()
    }

    /// Returns true if all input bytes are used; always false with a seed.
    pub fn is_at_end(&self) -> bool {
        self.rng.is_at_end()
    }

    /// Returns the next step, chosen according to the core's state.
    pub fn next(&mut self, model: &Model) -> Step {
        if !std::mem::replace(&mut self.begun, true) && self.theme == Theme::Limit {
            let most = self.rng.pick(&[8, 24]);
            let leave = self.rng.below(most);
            return Step {
                process: 0,
                op: Op::Fill { leave },
            };
        }
        let mut alive = [false; PROCESSES];
        for (process, alive) in alive.iter_mut().enumerate() {
            *alive = model.mm(process).is_some();
        }
        let mut process = self.rng.below(PROCESSES as u64) as usize;
        while !alive[process] && alive.contains(&true) {
            process = (process + 1) % PROCESSES;
        }
        let vmas = model.ranges(process);
        let mut choice = Choice {
            rng: &mut self.rng,
            theme: self.theme,
            last: &mut self.last,
            vmas,
            model,
            process,
            alive,
            brk: model.brk(process),
            counts: model.counts(process),
            facts: self.facts,
        };
        let more = more_kinds(self.theme);
        let kinds = KINDS.iter().chain(more);
        let kind = choice.rng.weighted(kinds.clone().map(|k| k.weight));
        let make = kinds.map(|k| k.make).nth(kind).unwrap_or(process::read);
        let op = make(&mut choice);
        Step {
            process: process as u8,
            op,
        }
    }
}

impl Choice<'_> {
    fn addr(&mut self) -> u64 {
        if self.theme.is_huge() && self.rng.chance(3, 4) {
            let slot = HUGE + self.rng.below(HUGE_SLOTS) * PMD_SIZE;
            let within = [0, 0, 0, 1, 2, 200, 511];
            return slot + self.rng.pick(&within) * PAGE_SIZE;
        }
        match self.rng.below(32) {
            0 => HEAP + self.rng.below(PAGES) * PAGE_SIZE,
            1 | 2 => DEEP + self.rng.below(DEEP_PAGES) * PAGE_SIZE,
            _ => START + self.rng.below(PAGES) * PAGE_SIZE,
        }
    }

    /// Returns a length: usually a few pages, rarely many.
    fn len(&mut self) -> u64 {
        if self.theme.is_huge() && self.rng.chance(1, 2) {
            let more = self.rng.pick(&[0, 0, 0, 1, 2, 511]) * PAGE_SIZE;
            return PMD_SIZE * self.rng.pick(&[1, 1, 2]) + more;
        }
        let most = self.rng.pick(&[2, 4, 4, 8, 8, 32]);
        (1 + self.rng.below(most)) * PAGE_SIZE
    }

    /// Returns a VMA's range, a part of it, a range over several VMAs, or an arbitrary range.
    fn range(&mut self) -> (u64, u64) {
        let range = match self.rng.below(8) {
            0 => self.last.unwrap_or((START, PAGE_SIZE)),
            1 | 2 if !self.vmas.is_empty() => {
                let v = self.vma();
                (v.start, v.end - v.start)
            }
            3 | 4 if !self.vmas.is_empty() => self.part(),
            5 if !self.vmas.is_empty() => {
                let (start, _) = self.part();
                (start, self.len())
            }
            _ => (self.addr(), self.len()),
        };
        let end = if range.0 >= HEAP {
            HEAP_END
        } else {
            arena::END
        };
        let range = (
            range.0,
            range.1.min(end.saturating_sub(range.0)).max(PAGE_SIZE),
        );
        *self.last = Some(range);
        range
    }

    fn vma(&mut self) -> Mapped {
        self.vmas[self.rng.below(self.vmas.len() as u64) as usize]
    }

    fn part(&mut self) -> (u64, u64) {
        let v = self.vma();
        let pages = (v.end - v.start) / PAGE_SIZE;
        let from = self.rng.below(pages);
        let to = from + 1 + self.rng.below(pages - from);
        let (from, to) = match self.rng.below(3) {
            0 => (0, to),
            1 => (from, pages),
            _ => (from, to),
        };
        (v.start + from * PAGE_SIZE, (to - from) * PAGE_SIZE)
    }

    /// Returns an address for a mapping of `len` bytes: adjacent to a VMA, or anywhere.
    fn place(&mut self, len: u64) -> u64 {
        let at = if self.vmas.is_empty() || self.rng.chance(1, 3) {
            self.addr()
        } else {
            let v = self.vma();
            match self.rng.below(3) {
                0 => v.start.saturating_sub(len),
                1 => v.end,
                // The address that corresponds to the page offset of an unfaulted VMA.
                _ => START + (v.pgoff << 12).wrapping_sub(START) % (PAGES * PAGE_SIZE),
            }
        };
        let (low, end) = if at >= HEAP - PAGE_SIZE * PAGES {
            (HEAP, HEAP_END)
        } else {
            (START, arena::END)
        };
        at.clamp(low, end - PAGE_SIZE) & !(PAGE_SIZE - 1)
    }

    fn prot(&mut self) -> u64 {
        const RW: u64 = PROT_READ | PROT_WRITE;
        const RX: u64 = PROT_READ | PROT_EXEC;
        self.rng.pick(&[
            RW, RW, RW, RW, RW, RW, RW, RW, RW, RW, PROT_READ, PROT_READ, PROT_READ, PROT_READ, 0,
            0, RX, PROT_EXEC,
        ])
    }

    /// Makes an argument invalid in a small share of cases.
    fn spoil(&mut self, mut call: Call, addresses: &[usize], lengths: &[usize]) -> Op {
        if self.rng.chance(1, 40) {
            let (at, wrong) = if self.rng.chance(1, 2) && !addresses.is_empty() {
                let at = self.rng.pick(addresses);
                (
                    at,
                    call.args[at].wrapping_add(self.rng.pick(&[1, 8, 0x800, 0xfff])),
                )
            } else if !lengths.is_empty() {
                let at = self.rng.pick(lengths);
                let odd = call.args[at].wrapping_sub(1 + self.rng.below(4095));
                (
                    at,
                    self.rng.pick(&[0, odd, u64::MAX, u64::MAX - 4096, 1 << 63]),
                )
            } else {
                return Op::Call(call);
            };
            call.args[at] = wrong;
        }
        Op::Call(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea::policy::Policy;

    #[test]
    fn a_seed_gives_the_same_steps_wherever_the_heap_begins() {
        let policy = Policy::by_name("linux").unwrap();
        for seed in 0..200 {
            let [(mut one, mut first), (mut other, mut second)] =
                [0x5555_5555_0000, 0x5612_3456_7000].map(|heap| {
                    let model = Model::alone_with(policy, true, heap).unwrap();
                    (model, Generator::new(seed, Facts::ALL))
                });
            for number in 0..first.steps() {
                let (step, again) = (first.next(&one), second.next(&other));
                assert_eq!(step, again, "seed {seed}, step {number}");
                one.apply(&step);
                other.apply(&again);
            }
        }
    }
}
