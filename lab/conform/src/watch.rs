//! What looks at each sequence of a run, beside the comparison.

use super::op::Step;
use super::sequence::Pair;
use std::io;

/// Looks at each step of a run that kernel and core agree on.
pub trait Watch {
    /// A sequence begins, with the initial state.
    ///
    /// # Errors
    /// If what was seen cannot be written.
    fn begin(&mut self, _seed: u64, _pair: &Pair<'_>) -> io::Result<()> {
        Ok(())
    }

    /// A step was executed, with the same result and state on both sides.
    ///
    /// # Errors
    /// If what was seen cannot be written.
    fn step(&mut self, _step: &Step, _pair: &Pair<'_>) -> io::Result<()> {
        Ok(())
    }

    /// The sequence has ended. `compared` is the number of steps of the run before this sequence.
    fn end(&mut self, _compared: u64, _pair: &Pair<'_>) {}
}

/// Looks at nothing.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Watch for Unwatched {}
