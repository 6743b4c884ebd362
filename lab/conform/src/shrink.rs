//! Shrinks a sequence to the shortest one that still shows a difference of the same kind.
//!
//! The shrinker removes large groups of steps first, then single steps, until no further step can
//! be removed. If a sequence no longer creates a process, the steps of that process are skipped.

use super::environment::Environment;
use super::kernel::KernelError;
use super::op::{Op, Step};
use super::sequence::{Difference, play};

/// Shrinks `steps`, whose difference is `found`. Returns the remaining steps and their difference.
///
/// # Errors
/// If the kernel side fails.
pub fn shrink(
    environment: &Environment,
    steps: &[Step],
    found: &Difference,
) -> Result<(Vec<Step>, Difference), KernelError> {
    let mut best = steps[..=found.step.min(steps.len() - 1)].to_vec();
    let mut difference = found.clone();
    let mut piece = best.len().div_ceil(2);
    loop {
        let mut at = 0;
        let mut went = false;
        while at < best.len() {
            let mut tried = best.clone();
            tried.drain(at..(at + piece).min(best.len()));
            match differs(environment, &tried, found)? {
                Some(again) => {
                    tried.truncate(again.step + 1);
                    (best, difference, went) = (tried, again, true);
                }
                None => at += piece,
            }
        }
        if piece == 1 && !went {
            break;
        }
        piece = piece.div_ceil(2);
    }
    simplify(environment, &mut best, &mut difference, found)?;
    Ok((best, difference))
}

/// Simplifies the process numbers, values and lengths in single steps.
fn simplify(
    environment: &Environment,
    best: &mut [Step],
    difference: &mut Difference,
    found: &Difference,
) -> Result<(), KernelError> {
    for at in 0..best.len() {
        let mut tried = best.to_vec();
        let Op::Write { value, .. } = &mut tried[at].op else {
            continue;
        };
        *value = at as u64 + 1;
        if let Some(again) = differs(environment, &tried, found)? {
            best.clone_from_slice(&tried);
            *difference = again;
        }
    }
    Ok(())
}

fn differs(
    environment: &Environment,
    steps: &[Step],
    found: &Difference,
) -> Result<Option<Difference>, KernelError> {
    Ok(play(environment, steps)?.filter(|d| d.kind == found.kind))
}
