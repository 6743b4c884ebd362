//! Effects of moving the per-VMA lock into the VMA: memory, layout, page faults, cache transfers.
//!
//! The VMA structures before, during and after the Linux patch series are modelled in [`structs`];
//! the core's own structures are also measured. Page faults run on the core with each kind of lock;
//! their speed is compared with the speed in the same round with the separately allocated lock.
//! Cache-line transfers on machines with more processors than this one are counted in a simulation
//! ([`coherence`]).

pub mod structs;

use super::claim::{Bound, Claim};
use super::coherence::{Access, transfers_per_round};
use super::figure::{Figure, Published, Unit};
use super::report::{Line, Report, Table};
use super::{Context, coherence};
use crate::{fault, layout};
use structs::{Lock, Object, State, objects_per_slab, pages_for, states};
use vmarea::vma::lock::{FlaggedVmaLock, VmaLock, VmaLockKind};

const SOURCE: &str = "cover letter of the series, version 1";
/// Memory use in three states: before the series, with the lock on a cache line of its own, and
/// after the series. The columns are the bytes of the VMA, the bytes of a separate lock, VMAs per
/// slab, pages per slab, and pages for 1,000 VMAs.
const MEMORY: [[f64; 5]; 3] = [
    [160.0, 40.0, 51.0, 2.0, 50.0],
    [256.0, 0.0, 32.0, 2.0, 64.0],
    [192.0, 0.0, 42.0, 2.0, 48.0],
];
/// Number of separately allocated locks that fit in a one-page slab.
const LOCKS_PER_SLAB: f64 = 102.0;
/// `pahole` summary: size, cache lines, members and their bytes, holes and their bytes, padding.
const SUMMARY: [f64; 7] = [192.0, 3.0, 17.0, 153.0, 3.0, 15.0, 24.0];
/// Offset and size of each member, in the order of the `pahole` listing.
const LISTING: [(usize, usize); 17] = [
    (0, 16),
    (16, 8),
    (24, 8),
    (32, 8),
    (40, 1),
    (44, 4),
    (48, 16),
    (64, 8),
    (72, 8),
    (80, 8),
    (88, 8),
    (96, 8),
    (104, 8),
    (112, 8),
    (128, 4),
    (136, 32),
    (168, 0),
];
/// Number of pages in a slab of VMAs, according to the paper.
const SLAB_PAGES: usize = 2;
/// Number of processors of each simulated machine.
const CPUS: [u32; 5] = [4, 8, 16, 28, 56];

/// Runs the experiment.
pub(super) fn run(context: &Context<'_>, report: &mut Report) {
    if context.quick {
        report.shorten("24 of 31 rounds of the page-fault test, and three quarters of its pages");
    }
    memory(report);
    listing(report);
    let measured = faults(context, report);
    report.keep("page-fault test", measured);
    transfers(report);
}

fn counts(values: impl IntoIterator<Item = f64>) -> Vec<Option<Figure>> {
    let figure = |value| Some(Figure::exact(value, Unit::Count));
    values.into_iter().map(figure).collect()
}

fn published(values: &[f64]) -> Vec<Line<Published>> {
    let cells = values.iter().map(|&v| Published::exact(v, Unit::Count));
    vec![Line::full("", cells)]
}

fn ours(cells: Vec<Option<Figure>>) -> Line<Figure> {
    Line {
        who: "model".to_owned(),
        cells,
    }
}

/// Returns one row of [`MEMORY`] for a state of the series.
fn memory_of(state: &State) -> [f64; 5] {
    let size = state.vma.size;
    let (lock, locks) = match state.lock {
        Lock::Allocated(size) => (size, pages_for(1000, size, 1)),
        Lock::Embedded => (0, 0),
    };
    [
        size,
        lock,
        objects_per_slab(size, SLAB_PAGES),
        SLAB_PAGES,
        pages_for(1000, size, SLAB_PAGES) + locks,
    ]
    .map(|value| value as f64)
}

fn memory_table() -> Table {
    let columns = [
        "bytes of\na VMA",
        "bytes of\nits lock",
        "VMAs in\na slab",
        "pages of\na slab",
        "pages for\n1,000 VMAs",
    ];
    let mut table = Table::new("Memory of a VMA and its lock", SOURCE, &columns);
    table.explain([
        "The series moves the lock of a VMA, which page faults take, from an allocation of its own \
         into vm_area_struct. Linux allocates both from slabs: a slab is a number of pages, here two \
         for VMAs and one for locks, that holds as many objects as fit. pages for 1,000 VMAs: pages of \
         all slabs that 1,000 VMAs and their locks fill.",
        "paper: the cover letter's figures. ours model: computed from the members of the structures, \
         field by field. ours core: vmarea's own VMA with each kind of lock, as compiled.",
    ]);
    table
}

fn memory(report: &mut Report) {
    let mut table = memory_table();
    let [before, unaligned, aligned, after] = states();
    let papers = [
        (&before, Some(&MEMORY[0])),
        (&unaligned, None),
        (&aligned, Some(&MEMORY[1])),
        (&after, Some(&MEMORY[2])),
    ];
    for (state, paper) in papers {
        let paper = paper.map_or_else(Vec::new, |paper| published(paper));
        table.row(state.name, paper, vec![ours(counts(memory_of(state)))]);
    }
    let core = layout::run(1000).map_err(|error| error.to_string());
    if let Some(core) = report.keep("layout of the core's VMAs", core) {
        for row in &core.rows {
            let apart = row.bytes.first().map_or(0.0, |each| each.lock);
            let slab = [1.0, row.pages_per_1000 as f64];
            let cells = [row.size as f64, apart, row.per_page as f64];
            let line = Line {
                who: "core".to_owned(),
                cells: counts(cells.into_iter().chain(slab)),
            };
            table.row(row.who, Vec::new(), vec![line]);
        }
        report.substitute(
            "the core's VMAs are in pages of their own instead of slabs of two pages, and its lock \
             is 4 bytes where the kernel's semaphore has 40; the models have the kernel's sizes",
        );
    }
    report.tables.push(table);
    report.claims.extend(memory_claims(
        [before, aligned, after].map(|state| memory_of(&state)[4]),
        objects_per_slab(40, 1) as f64,
    ));
}

/// Decides the claims about the pages for 1,000 VMAs before, during and after the series, and about
/// the locks in a page.
fn memory_claims(pages: [f64; 3], locks: f64) -> Vec<Claim> {
    let texts = [
        "50 pages for 1,000 VMAs before",
        "64 pages with the lock aligned",
        "48 pages after",
    ];
    let what = "pages of two-page slabs, computed from the structures' members";
    let of_state = |((text, pages), paper): ((&str, f64), [f64; 5])| {
        let figure = Figure::exact(pages, Unit::Count);
        let bound = Bound::Exactly(paper[4]);
        Claim::by(text, format!("{} pages", paper[4]), (what, &figure), bound)
    };
    let pages = texts.into_iter().zip(pages).zip(MEMORY).map(of_state);
    let locks = Claim::by(
        "102 allocated locks in a page",
        "102",
        (
            "locks of 40 bytes in a page",
            &Figure::exact(locks, Unit::Count),
        ),
        Bound::Exactly(LOCKS_PER_SLAB),
    );
    pages.chain([locks]).collect()
}

fn listing(report: &mut Report) {
    let [.., State { vma, .. }] = states();
    let columns = [
        "bytes",
        "cache\nlines",
        "members",
        "sum of\nmembers",
        "holes",
        "sum of\nholes",
        "padding",
    ];
    let mut table = Table::new("vm_area_struct after the series", SOURCE, &columns);
    table.explain([
        "The summary of the listing that pahole prints for the structure. Sizes, sums and padding \
         are bytes, a cache line has 64; holes are unused gaps between two members.",
    ]);
    let holes = vma.holes();
    let summary = [
        vma.size,
        vma.lines(),
        vma.members.len(),
        vma.sum(),
        holes.len(),
        holes.iter().sum(),
        vma.padding(),
    ]
    .map(|value| value as f64);
    table.row("", published(&SUMMARY), vec![ours(counts(summary))]);
    report.tables.push(table);
    let columns = ["offset", "bytes", "cache\nline"];
    let mut table = Table::new("Its members", SOURCE, &columns);
    table.explain(["offset and bytes: where a member begins and how long it is, in bytes."]);
    for (member, (offset, size)) in vma.members.iter().zip(LISTING) {
        let cells = |offset: usize, size: usize| [offset, size, offset / 64].map(|v| v as f64);
        table.row(
            member.name,
            published(&cells(offset, size)),
            vec![ours(counts(cells(member.offset, member.size)))],
        );
    }
    report.tables.push(table);
    let members = vma.members.iter().map(|m| (m.offset, m.size));
    report.claims.push(listing_claim(summary, members));
}

/// Decides whether the structure with this summary and these members is the listed one.
fn listing_claim(
    summary: [f64; SUMMARY.len()],
    members: impl Iterator<Item = (usize, usize)>,
) -> Claim {
    let lines = summary
        .iter()
        .zip(SUMMARY)
        .filter(|(ours, theirs)| **ours == *theirs);
    let members = members.zip(LISTING).filter(|(ours, theirs)| ours == theirs);
    let equal = lines.count() + members.count();
    Claim::by(
        "192 bytes in three cache lines, each member where the listing has it",
        "192 bytes, 3 lines",
        (
            &format!(
                "{} bytes, {} lines; figures of the summary and members that are as in the listing",
                summary[0], summary[1]
            ),
            &Figure::exact(equal as f64, Unit::Count),
        ),
        Bound::Exactly((SUMMARY.len() + LISTING.len()) as f64),
    )
}

fn faults(context: &Context<'_>, report: &mut Report) -> Result<(), String> {
    let setup = fault::Setup {
        pages: if context.quick { 4096 } else { 16_384 },
        rounds: if context.quick { 7 } else { 31 },
    };
    let pairs = fault::pairs(&setup).map_err(|error| error.to_string())?;
    let columns = ["1 thread", "2 threads,\nown VMAs", "2 threads,\none VMA"];
    let title = "Faults per second, relative to the lock allocated apart";
    let source = "cover letter: pft on x86, no considerable difference; Pixel 6, 3 to 5 % more";
    let mut table = Table::new(title, source, &columns);
    table.explain([
        "Threads touch new pages of anonymous memory in vmarea's core. Each figure is the number of \
         faults per second of processor time with one kind of lock, divided by that with the lock \
         that is allocated apart, in the same round: above 1 is faster. Below it is the interval of \
         the median. rwlock: a reader-writer lock, as before the series. atomic and flag: the lock of \
         the series, an atomic counter and a flag in the VMA. atomic: ours, one word for both.",
    ]);
    for pair in &pairs {
        let figure = |runs: &Vec<f64>| Figure::of_runs(runs, Unit::Ratio);
        let line = Line {
            who: "core".to_owned(),
            cells: pair.ratios.iter().map(figure).collect(),
        };
        table.row(pair.who, Vec::new(), vec![line]);
    }
    report.substitute(
        "pft is not at hand: each thread touches new pages through the core's fault path, and a \
         page is filled with zeros; speed is that of the processor time, on the core without traps",
    );
    report.claims.extend(fault_claims(&pairs));
    report.tables.push(table);
    Ok(())
}

/// Decides the claims that the embedded locks (the series' and ours) make faults no slower.
fn fault_claims(pairs: &[fault::Pair]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (kind, lock, paper) in [
        (
            <FlaggedVmaLock as VmaLockKind>::NAME,
            "the series' atomic",
            "x86: no considerable difference (we take 2 %)",
        ),
        (
            <VmaLock as VmaLockKind>::NAME,
            "vmarea's atomic",
            "no figure; our lock",
        ),
    ] {
        let ratios = pairs.iter().filter(|pair| pair.who == kind);
        let ratios = ratios.flat_map(|pair| &pair.ratios).zip([
            "1 thread",
            "2 threads, own VMAs",
            "2 threads, one VMA",
        ]);
        for (runs, threads) in ratios {
            if let Some(figure) = Figure::of_runs(runs, Unit::Ratio) {
                claims.push(Claim::by(
                    format!("{lock} in the VMA makes faults no slower, {threads}"),
                    paper,
                    (
                        &format!("speed with \"{kind}\" / with the lock allocated apart"),
                        &figure,
                    ),
                    Bound::AtLeast(0.98),
                ));
            }
        }
    }
    claims
}

/// Fields of the VMA that a page fault reads.
const READ: [&str; 10] = [
    "vm_start_vm_end",
    "vm_mm",
    "vm_page_prot",
    "vm_flags",
    "detached",
    "vm_lock_seq",
    "anon_vma",
    "vm_ops",
    "vm_pgoff",
    "vm_policy",
];

/// Returns the memory accesses of a page fault in the VMA at position `vma` of its slab.
fn fault_accesses(state: &State, vma: u64) -> Vec<Access> {
    let base = 0x10_0000 + vma * state.vma.size as u64;
    let at = |object: &Object, name| base + object.offset(name).unwrap_or(0) as u64;
    let lock = match state.lock {
        Lock::Allocated(size) => 0x80_0000 + vma * size as u64,
        Lock::Embedded => at(&state.vma, "vm_lock"),
    };
    let mut list = vec![Access::Read(at(&state.vma, "vm_lock_seq"))];
    if state.lock != Lock::Embedded {
        list.push(Access::Read(at(&state.vma, "vm_lock_pointer")));
    }
    list.push(Access::Write(lock));
    list.extend(READ.map(|name| Access::Read(at(&state.vma, name))));
    list.push(Access::Write(lock));
    list
}

/// Returns the number of transfers per page fault, for each number of processors in [`CPUS`].
fn transfers_of(state: &State, shared: bool) -> Vec<f64> {
    let each = |cpus: u32| {
        let list = |cpu| fault_accesses(state, if shared { 0 } else { u64::from(cpu) });
        let lists: Vec<_> = (0..cpus).map(list).collect();
        transfers_per_round(&lists, 200)
    };
    CPUS.map(each).into()
}

fn transfers(report: &mut Report) {
    let columns = CPUS.map(|cpus| format!("{cpus} CPUs"));
    let columns = columns.each_ref().map(String::as_str);
    report.substitute(format!(
        "machines with 4 to 56 processors: transfers of {}-byte lines between caches are counted in \
         a deterministic simulation without time, at most {} processors",
        coherence::LINE,
        coherence::MOST_CPUS
    ));
    for (shared, title) in [
        (
            true,
            "Line transfers of a fault, all in one VMA (simulated)",
        ),
        (
            false,
            "Line transfers of a fault, neighbouring VMAs (simulated)",
        ),
    ] {
        let mut table = Table::new(title, "no table in the paper", &columns);
        table.explain([
            "How often a cache line moves from one processor's cache to another's in one page fault, \
             on average, if all processors fault at once: simulated with the members that a fault \
             reads and writes in each layout. Each such move costs a fault about as much as an \
             access to memory.",
        ]);
        for state in states() {
            let counts = transfers_of(&state, shared).into_iter();
            let figure = |value: f64| Some(Figure::exact(value, Unit::Ratio));
            table.row(
                state.name,
                Vec::new(),
                vec![ours(counts.map(figure).collect())],
            );
        }
        report.tables.push(table);
    }
    let [before, unaligned, _, after] = states();
    let claims =
        transfer_claims([&before, &unaligned, &after].map(|state| transfers_of(state, true)));
    report.claims.extend(claims);
}

/// Decides the claims about the line transfers of a fault with the lock allocated apart, among the
/// fields of the VMA, and on a line of its own in the VMA; for each number of [`CPUS`].
fn transfer_claims([apart, among, own]: [Vec<f64>; 3]) -> Vec<Claim> {
    let ratio = |of: &[f64], to: &[f64]| {
        let sum = |counts: &[f64]| counts.iter().sum::<f64>();
        Figure::exact(sum(of) / sum(to), Unit::Ratio)
    };
    let what = |of: &str, counts: &[f64], to: &str, others: &[f64]| {
        let text =
            |counts: &[f64]| format!("{:.2} at 4 and {:.2} at 56 CPUs", counts[0], counts[4]);
        format!(
            "simulated line transfers of a fault with the lock {of} ({}) / {to} ({})",
            text(counts),
            text(others)
        )
    };
    vec![
        Claim::by(
            "a lock among the fields shares a line with what faults read",
            "the first attempt's regression was false sharing",
            (
                &what("among the fields", &among, "on a line of its own", &own),
                &ratio(&among, &own),
            ),
            Bound::MoreThan(1.0),
        ),
        Claim::by(
            "the lock in the VMA transfers no more lines than the allocated one",
            "no regression but on Broadwell",
            (
                &what("in the VMA", &own, "allocated apart", &apart),
                &ratio(&own, &apart),
            ),
            Bound::AtMost(1.0),
        ),
        Claim::undecided(
            "a regression remains on old Broadwell processors, by their prefetch of adjacent lines",
            "limited to Broadwell, mitigated without the prefetch",
            "pft on Broadwell: no fewer faults per second with the lock in the VMA",
            "needs that processor: the simulation has neither prefetching nor evictions",
        ),
    ]
}

/// Claims decided by figures that contradict them.
#[cfg(test)]
pub(super) fn refuted() -> Vec<Claim> {
    let slower = |who| fault::Pair {
        who,
        ratios: std::array::from_fn(|_| vec![0.8, 0.9, 0.95]),
    };
    let kinds = [
        <FlaggedVmaLock as VmaLockKind>::NAME,
        <VmaLock as VmaLockKind>::NAME,
    ];
    let mut claims = fault_claims(&kinds.map(slower));
    claims.extend(memory_claims([51.0, 63.0, 50.0], 101.0));
    let mut shifted = LISTING;
    shifted[16].0 += 8;
    claims.push(listing_claim(SUMMARY, shifted.into_iter()));
    // The allocated lock has the fewest transfers, and the lock among the fields no more than that
    // on its own line.
    let transfers = transfer_claims([1.0, 2.0, 2.0].map(|each| vec![each; CPUS.len()]));
    claims.extend(transfers.into_iter().take(2));
    claims
}

#[cfg(test)]
mod tests {
    use super::super::claim::Decision;
    use super::*;

    /// A lock that has a line of its own causes no false sharing, wherever the line is.
    #[test]
    fn the_simulated_transfers_follow_from_the_layout() {
        let [before, unaligned, aligned, after] = states().map(|state| transfers_of(&state, true));
        let claims = transfer_claims([before.clone(), unaligned, after]);
        let decided: Vec<_> = claims.iter().take(2).map(|claim| claim.decision).collect();
        assert_eq!(decided, [Decision::Holds; 2]);
        let claims = transfer_claims([before, aligned.clone(), aligned]);
        assert_eq!(claims[0].decision, Decision::DoesNotHold);
    }
}
