//! Tables of the values that many bands share, so that a band is a few numbers.

use crate::graph::Vma;
use std::collections::HashMap;
use std::hash::Hash;
use vmarea::types::VmFlags;
use vmarea::vma::merge::Refusal;
use vmarea_process::maps::MapName;
use vmarea_process::{Mapping, Reason};
use vmarea_trace::event::Perms;

/// Values in order of first occurrence, each with its number.
#[derive(Clone, Debug)]
pub struct Interner<K> {
    values: Vec<K>,
    numbers: HashMap<K, u32>,
}

impl<K> Default for Interner<K> {
    fn default() -> Self {
        Interner {
            values: Vec::new(),
            numbers: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash> Interner<K> {
    /// Returns the number of a value; adds the value if it is new.
    pub fn number(&mut self, value: K) -> u32 {
        if let Some(&number) = self.numbers.get(&value) {
            return number;
        }
        let number = self.values.len() as u32;
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        number
    }

    /// Returns the value with this number.
    pub fn get(&self, number: u32) -> Option<&K> {
        self.values.get(number as usize)
    }

    /// Returns all values by number.
    pub fn values(&self) -> &[K] {
        &self.values
    }
}

/// Kind of a mapping, which determines its colour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Private memory without a file.
    Anonymous,
    /// The heap that `brk` grows.
    Heap,
    /// The stack of the first thread.
    Stack,
    /// Executable pages of a file.
    Code,
    /// Other private pages of a file.
    File,
    /// Memory that several processes may share.
    Shared,
    /// Addresses that may not be accessed: guards and reservations.
    Reserved,
    /// Mappings of the kernel, such as `[vdso]`.
    Kernel,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 8] = [
        Kind::Anonymous,
        Kind::Heap,
        Kind::Stack,
        Kind::Code,
        Kind::File,
        Kind::Shared,
        Kind::Reserved,
        Kind::Kernel,
    ];

    /// Returns the words of the legend.
    pub fn words(self) -> &'static str {
        match self {
            Kind::Anonymous => "anonymous",
            Kind::Heap => "heap",
            Kind::Stack => "stack",
            Kind::Code => "code",
            Kind::File => "file",
            Kind::Shared => "shared",
            Kind::Reserved => "no access",
            Kind::Kernel => "kernel",
        }
    }

    /// Returns the kind of a mapping.
    pub fn of(mapping: &Mapping) -> Kind {
        let perms = mapping.entry.perms;
        match &mapping.entry.name {
            MapName::Special(_) => Kind::Kernel,
            _ if !(perms.read || perms.write || perms.exec) => Kind::Reserved,
            MapName::Stack => Kind::Stack,
            MapName::Heap => Kind::Heap,
            _ if perms.shared => Kind::Shared,
            MapName::Path(_) if perms.exec => Kind::Code,
            MapName::Path(_) => Kind::File,
            MapName::Named(_) | MapName::None => Kind::Anonymous,
        }
    }
}

/// What a reader sees of a mapping besides its range.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Look {
    /// Kind of the mapping.
    pub kind: Kind,
    /// Permissions as in `/proc/PID/maps`.
    pub perms: String,
    /// The last column of `/proc/PID/maps`.
    pub name: String,
}

impl Look {
    /// Returns the look of a mapping.
    pub fn of(mapping: &Mapping) -> Look {
        Look {
            kind: Kind::of(mapping),
            perms: mapping.entry.perms.to_string(),
            name: mapping.entry.name.text(),
        }
    }

    /// Returns the look of a VMA in a graph.
    pub fn of_vma(vma: &Vma) -> Look {
        let has = |flag| vma.flags.contains(flag);
        let access = Perms {
            read: has(VmFlags::READ),
            write: has(VmFlags::WRITE),
            exec: has(VmFlags::EXEC),
            shared: has(VmFlags::MAYSHARE),
        };
        let kind = match vma.name.as_str() {
            "[heap]" => Kind::Heap,
            "[stack]" => Kind::Stack,
            _ if !vma.flags.intersects(VmFlags::ACCESS) => Kind::Reserved,
            _ if access.shared => Kind::Shared,
            "" => Kind::Anonymous,
            name if name.starts_with('[') => Kind::Kernel,
            _ if access.exec => Kind::Code,
            _ => Kind::File,
        };
        Look {
            kind,
            perms: access.to_string(),
            name: vma.name.clone(),
        }
    }
}

/// Number of the pseudo-reason of the first mapping, which has no neighbour below it.
pub const FIRST: u8 = 0;

/// Returns every reason, by number minus one.
pub fn reasons() -> impl Iterator<Item = Reason> {
    let plain = [Reason::Gap, Reason::Guard, Reason::Nothing];
    plain
        .into_iter()
        .chain(Refusal::ALL.into_iter().map(Reason::Rule))
        .chain([Reason::Cut])
}

/// Returns the number of a reason.
pub fn reason_number(reason: Reason) -> u8 {
    match reason {
        Reason::Gap => 1,
        Reason::Guard => 2,
        Reason::Nothing => 3,
        Reason::Rule(refusal) => 4 + refusal as u8,
        Reason::Cut => 4 + Refusal::ALL.len() as u8,
    }
}

/// A call that makes mappings, and the stack on which it was made.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Site {
    /// Name of the call with its relevant arguments.
    pub call: String,
    /// Stack number, if stacks were recorded.
    pub stack: Option<u32>,
}

/// An anon_vma with its place in its family; each number is that of another entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Anon {
    /// The parent; a root is its own parent.
    pub parent: u32,
    /// The root of the family.
    pub root: u32,
}

/// All tables of a timeline.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Looks of mappings.
    pub looks: Interner<Look>,
    /// Calls that make mappings.
    pub sites: Interner<Site>,
    /// Chains of more than one anon_vma, each a list of numbers in `anons`.
    pub chains: Interner<Vec<u32>>,
    /// Labels of calls.
    pub labels: Interner<String>,
    /// The anon_vmas.
    pub anons: Vec<Anon>,
    /// Numbers of the core's ids; the core reuses no id.
    pub anon_numbers: HashMap<u64, u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_their_place_as_number() {
        for (place, reason) in reasons().enumerate() {
            assert_eq!(usize::from(reason_number(reason)), place + 1);
        }
    }

    #[test]
    fn equal_values_have_one_number() {
        let mut table = Interner::default();
        assert_eq!(
            [table.number("a"), table.number("b"), table.number("a")],
            [0, 1, 0]
        );
        assert_eq!(table.values(), ["a", "b"]);
    }
}
