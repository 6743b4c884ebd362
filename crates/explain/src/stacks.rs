//! The distinct call stacks of a recording, unwound and named while the program runs.
//!
//! The crate `symbols` unwinds and names; a stack is a list of its locations. The table gives each
//! distinct stack a number.

use super::glue;
use super::recording::CallStacks;
use std::collections::HashMap;
use vmarea_recorder::CallStack;
use vmarea_symbols::{Frame, LocationId, StackCopy, Symbols, Table, Target};
use vmarea_trace::event::Tid;

/// Table of all distinct stacks, while it is being filled.
#[derive(Default)]
pub struct StackTable {
    calls: CallStacks,
    symbols: Symbols,
    numbers: HashMap<Vec<LocationId>, u32>,
    stacks: Vec<Vec<LocationId>>,
}

/// All distinct stacks, by stack number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stacks {
    /// Locations of each stack, innermost first.
    pub stacks: Vec<Vec<LocationId>>,
    /// Meaning of the locations.
    pub table: Table,
}

impl StackTable {
    /// Adds the stack of a thread at a call; the thread must still be stopped at the call.
    pub fn add(&mut self, stack: &CallStack) {
        let target = Target {
            pid: stack.pid,
            tid: stack.tid,
            space: stack.mm,
        };
        let copy = StackCopy {
            ip: stack.ip,
            sp: stack.sp,
            bp: stack.bp,
            bytes: &stack.bytes,
        };
        let locations = self.symbols.unwind(target, &copy);
        let number = match self.numbers.get(&locations) {
            Some(&number) => number,
            None => {
                let next = self.stacks.len() as u32;
                self.stacks.push(locations.clone());
                self.numbers.insert(locations, next);
                next
            }
        };
        let calls = self.calls.by_thread.entry(Tid(stack.tid)).or_default();
        calls.push_back(number);
    }

    /// Returns the stack number of each call, and the stacks.
    pub fn into_parts(self) -> (CallStacks, Stacks) {
        let stacks = Stacks {
            stacks: self.stacks,
            table: self.symbols.into_table(),
        };
        (self.calls, stacks)
    }
}

impl Stacks {
    /// Returns the locations of a stack, innermost first; none if there is no such stack.
    pub fn locations(&self, number: Option<u32>) -> &[LocationId] {
        let stack = number.and_then(|number| self.stacks.get(number as usize));
        stack.map_or(&[], Vec::as_slice)
    }

    /// Returns the program's own function in a stack, as `explain` names it.
    ///
    /// `None` if all functions only pass requests on, such as those of the loader.
    pub fn own_function(&self, number: Option<u32>) -> Option<&Frame> {
        let frames: Vec<_> = self.frames(number).collect();
        let own = frames.get(glue::own_function(&frames)).copied()?;
        (!glue::is_glue(own)).then_some(own)
    }

    /// Returns the functions of a stack, innermost first.
    pub fn frames(&self, number: Option<u32>) -> impl Iterator<Item = &Frame> {
        self.table.frames(self.locations(number))
    }
}
