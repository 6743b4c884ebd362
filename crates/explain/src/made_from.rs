//! The functions of the program that made the mappings, and what each could save.

use super::glue;
use super::made_by::{Made, Traced, most};
use super::plan::Plan;
use super::prevention::Prevented;
use serde::Serialize;
use std::collections::HashMap;
use vmarea_symbols::Frame;

/// Mappings that one function of the program made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MadeFrom {
    /// The function: the innermost one that belongs to neither a standard library nor an allocator.
    pub code: Frame,
    /// Library that makes the calls for the function, such as an allocator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// Whether the function belongs to a library that passes requests on, because no other function
    /// was found, such as in the dynamic loader.
    pub library: bool,
    /// Number of boundaries that the function's calls created and that still exist at the examined
    /// moment; each costs one mapping.
    pub mappings: u64,
    /// Number of these boundaries that all repairs together remove.
    pub removable: u64,
    /// The calls, most boundaries first.
    pub calls: Vec<MadeCall>,
    /// Number of distinct stacks on which the function made the calls.
    pub stacks: u64,
    /// The most frequent of these stacks, innermost function first.
    pub stack: Vec<Frame>,
    /// Index of `code` in `stack`.
    pub own: usize,
}

/// A call of a function, and the boundaries that it created.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MadeCall {
    /// Name of the call.
    pub call: String,
    /// Reason why the mappings are separate.
    pub reason: &'static str,
    /// Line of the function that made the call, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Number of boundaries.
    pub mappings: u64,
}

/// Function, module and file of a frame.
type Key<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

impl Traced<'_> {
    /// Returns the functions of the program that made mappings, most mappings first.
    pub fn functions(&self, plan: &Plan) -> Vec<MadeFrom> {
        let mut owners: HashMap<u32, Option<(usize, Key<'_>)>> = HashMap::new();
        let each = self.each().filter_map(|made| {
            let owner = owners.entry(made.origin.stack?);
            let (_, key) = (*owner.or_insert_with_key(|stack| self.owner(*stack)))?;
            Some((key, made))
        });
        let mut groups: HashMap<Key<'_>, Vec<Made<'_>>> = HashMap::new();
        for (key, made) in each {
            groups.entry(key).or_default().push(made);
        }
        let functions = groups.values().map(|made| self.function(made, plan));
        let mut functions: Vec<_> = functions.collect();
        functions
            .sort_by(|a, b| (b.mappings, &a.code.function).cmp(&(a.mappings, &b.code.function)));
        functions
    }

    /// Returns the changes to the program, with the functions whose calls they replace.
    pub fn prevented(&self) -> Vec<Prevented> {
        let mut all = self.recorded.prevented.clone();
        for change in &mut all {
            change.older = self.recorded.older;
            let frames: Vec<_> = self.stacks.frames(change.stack).collect();
            let own = glue::own_function(&frames);
            change.site = frames.get(own).copied().cloned();
            change.in_pthread_create = frames[..own.min(frames.len())]
                .iter()
                .any(|frame| glue::is_pthread_create(frame));
        }
        all
    }

    /// Returns the index of the program's own function in a stack, and the function.
    fn owner(&self, stack: u32) -> Option<(usize, Key<'_>)> {
        let frames: Vec<_> = self.stacks.frames(Some(stack)).collect();
        let own = glue::own_function(&frames);
        let frame = *frames.get(own)?;
        let key = (
            frame.function.as_str(),
            frame.module.as_deref(),
            frame.file.as_deref(),
        );
        Some((own, key))
    }

    fn function(&self, made: &[Made<'_>], plan: &Plan) -> MadeFrom {
        let removable = made.iter().filter(|made| plan.removes(made.start));
        let stacks = most(made.iter().map(|made| made.origin.stack));
        let frequent = stacks.first().and_then(|(stack, _)| *stack);
        let stack: Vec<_> = self.stacks.frames(frequent).cloned().collect();
        let own = frequent
            .and_then(|stack| Some(self.owner(stack)?.0))
            .unwrap_or(0);
        let line = |stack: Option<u32>| {
            let own = self.owner(stack?)?.0;
            self.stacks.frames(stack).nth(own)?.line
        };
        let lines: HashMap<_, _> = stacks
            .iter()
            .map(|(stack, _)| (*stack, line(*stack)))
            .collect();
        let calls = most(made.iter().map(|made| {
            (
                &made.origin.call,
                made.boundary.reason,
                lines[&made.origin.stack],
            )
        }));
        let calls = calls
            .into_iter()
            .map(|((call, reason, line), mappings)| MadeCall {
                call: call.clone(),
                reason: reason.name(),
                line,
                mappings,
            });
        let frames: Vec<_> = stack.iter().collect();
        MadeFrom {
            through: glue::library(&frames, own).map(str::to_owned),
            library: stack.get(own).is_none_or(glue::is_glue),
            code: stack.get(own).cloned().unwrap_or_default(),
            mappings: made.len() as u64,
            removable: removable.count() as u64,
            calls: calls.collect(),
            stacks: stacks.len() as u64,
            stack,
            own,
        }
    }
}
