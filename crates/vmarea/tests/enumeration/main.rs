//! Every arrangement of three neighbours, under every call that can merge.
//!
//! One process, one child or one parent beside it; `prev`, `middle` and `next` of two pages each, with
//! pages in every state ([`arrange::Pages`]), equal or not in protection, on the line of page offsets
//! of their addresses or not; and then one call that may make them one. After it:
//!
//! - every invariant holds, so that the reverse map finds from each frame exactly the pages that map it;
//! - every byte of every process reads as before;
//! - the reason of each refusal is true ([`reasons`]): take the obstacle away and they merge, or another
//!   obstacle is named, of which the same is asked;
//! - nothing stays apart that the policy must merge ([`apart`]);
//! - what merged can be written to, and all of the above holds again.
//!
//! The whole takes minutes; without `VMAREA_ENUMERATION=all` every [`SHARE`]th case is taken, another
//! part under each policy. `ci/enumeration.sh` runs the whole.

mod apart;
mod arrange;
mod build;
mod reasons;
#[path = "../world/mod.rs"]
mod world;

use arrange::Arrangement;
use vmarea::policy::Policy;

/// Without the environment variable one case in so many is run.
const SHARE: usize = 41;

fn policies() -> [Policy; 6] {
    let mut generous = Policy::VMAREA;
    generous.merging.copy_budget = 2;
    [
        Policy::LINUX,
        Policy::LINUX_6_12,
        Policy::LINUX_5_10,
        Policy::THESIS,
        Policy::VMAREA,
        generous,
    ]
    .map(|mut policy| {
        // How pages become KSM's here; old kernels have other ways, which cut VMAs.
        policy.rules.memory_merge = true;
        policy
    })
}

/// Runs a case; what is wrong with it, or how many VMAs it left where it was about.
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

/// What came of many cases.
#[derive(Default)]
struct Ran {
    cases: usize,
    merged: usize,
    wrong: Vec<String>,
}

/// Every `share`th case from the `first` on, by as many threads as there are processors.
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
