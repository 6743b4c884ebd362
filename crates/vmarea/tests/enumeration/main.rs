//! Tests every arrangement of three neighbouring VMAs with every call that can merge them.
//!
//! A process, alone or with a child or a parent, has the VMAs `prev`, `middle` and `next`, each two
//! units long. Their pages are in every possible state ([`arrange::Pages`]), their protections are
//! equal or different, and their page offsets are contiguous or not. The process then makes one
//! call that may merge the VMAs. Afterwards:
//!
//! - every invariant holds, so a reverse-map walk from each frame finds exactly the entries that
//!   map the frame;
//! - every process reads the same bytes as before;
//! - the reason given for each refusal is true ([`reasons`]): if the obstacle is removed, the VMAs
//!   merge, or the decision names another obstacle, for which the same must hold;
//! - no two VMAs that the policy must merge are still separate ([`apart`]);
//! - the merged VMA can be written to, after which all of the above still holds.
//!
//! Running all cases takes minutes. Unless `VMAREA_ENUMERATION=all` is set, the test runs only one
//! in [`SHARE`] cases, and different ones under each policy. `ci/run enumeration` runs all cases.

mod apart;
mod arrange;
mod build;
mod reasons;
#[path = "../world/mod.rs"]
mod world;

use arrange::Arrangement;
use vmarea::policy::Policy;

/// Unless `VMAREA_ENUMERATION=all` is set, the test runs one in this many cases.
const SHARE: usize = 41;

fn policies() -> [Policy; 7] {
    let mut generous = Policy::VMAREA;
    generous.merging.copy_budget = 2;
    [
        Policy::LINUX,
        Policy::LINUX_6_12,
        Policy::LINUX_5_10,
        Policy::THESIS,
        Policy::RELOCATE,
        Policy::VMAREA,
        generous,
    ]
    .map(|mut policy| {
        // The scenes create KSM pages by this option; the alternatives on older kernels would split
        // VMAs.
        policy.rules.memory_merge = true;
        policy
    })
}

/// Runs a case; returns the number of VMAs afterwards, or a description of the defect.
fn run(policy: Policy, case: &Arrangement) -> Result<usize, String> {
    let mut scene = build::build(policy, case);
    scene
        .w
        .state()
        .map_err(|wrong| format!("before the call: {wrong}"))?;
    let told = reasons::listen(&mut scene.w);
    scene.call(case.call);
    scene.w.state()?;
    told.verdict()?;
    let left = apart::check(&scene, case)?;
    scene.write_all();
    let written = scene.w.state();
    written.map_err(|wrong| format!("written to: {wrong}"))?;
    Ok(left)
}

fn describe(policy: Policy, case: &Arrangement, wrong: &str) -> String {
    format!("{} {case:?}: {wrong}", policy.name)
}

/// Results of many cases.
#[derive(Default)]
struct Ran {
    cases: usize,
    merged: usize,
    wrong: Vec<String>,
}

/// Runs every `share`th case, starting with case `first`, with one thread per processor.
fn run_all(policy: Policy, cases: &[Arrangement], first: usize, share: usize) -> Ran {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let part = |n: usize| {
        let mut ran = Ran::default();
        let mine = cases.iter().skip(first).step_by(share);
        for case in mine.skip(n).step_by(threads) {
            ran.cases += 1;
            match run(policy, case) {
                Ok(left) => ran.merged += usize::from(left < case.present()),
                Err(what) => ran.wrong.push(describe(policy, case, &what)),
            }
        }
        ran
    };
    std::thread::scope(|scope| {
        let part = &part;
        let parts: Vec<_> = (0..threads).map(|n| scope.spawn(move || part(n))).collect();
        let mut all = Ran::default();
        for ran in parts.into_iter().map(|p| p.join().unwrap()) {
            all.cases += ran.cases;
            all.merged += ran.merged;
            all.wrong.extend(ran.wrong);
        }
        all
    })
}

#[test]
fn every_arrangement_under_every_call() {
    let all = std::env::var("VMAREA_ENUMERATION").is_ok_and(|v| v == "all");
    let cases = Arrangement::all();
    let share = if all { 1 } else { SHARE };
    let (mut ran, mut wrong) = (0, Vec::new());
    for (n, policy) in policies().into_iter().enumerate() {
        let of_policy = run_all(policy, &cases, n % share, share);
        println!(
            "{} with a budget of {} pages: {} of {} cases end with fewer VMAs",
            policy.name, policy.merging.copy_budget, of_policy.merged, of_policy.cases
        );
        ran += of_policy.cases;
        wrong.extend(of_policy.wrong);
    }
    println!("{ran} of {} cases", cases.len() * policies().len());
    println!("{} of them are wrong", wrong.len());
    wrong.truncate(20);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
