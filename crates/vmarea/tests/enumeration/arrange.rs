//! The arrangements: related processes, state of the neighbours, and system call.

/// Related processes that exist during the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    Alone,
    /// The parent makes the call.
    HasChild,
    /// The child makes the call.
    HasParent,
    /// The child makes the call after the parent has exited.
    ParentGone,
}

/// State of a mapping's pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    Unfaulted,
    /// Faulted after the fork, with a separate anon_vma.
    Own,
    /// Piece of a larger mapping that was faulted after the fork; the pieces share an anon_vma.
    Piece,
    /// Faulted before the fork.
    Inherited,
    /// Piece of a larger mapping that was faulted before the fork; the pieces share an anon_vma.
    InheritedPiece,
    /// Faulted before the fork, and written again after it.
    Rewritten,
    /// Like `Own`, with the first page swapped out.
    Swapped,
    /// Like `Inherited`, with both pages swapped out before the fork.
    SwappedInherited,
    /// Like `Own`; KSM has merged the first page with an equal page.
    Ksm,
    /// Like `Inherited`; KSM has merged the first page with an equal page after the fork.
    KsmInherited,
}

/// Half the size of a mapping in an arrangement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// One base page.
    Small,
    /// One huge page, if the alignment allows it.
    Huge,
}

/// A neighbour of the middle mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    pub pages: Pages,
    /// True if the neighbour has the attributes that the call gives the middle.
    pub equal: bool,
}

/// The call under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    ProtectWhole,
    ProtectLower,
    ProtectUpper,
    Advise,
    Lock,
    Bind,
    Move,
    /// `mremap` with `MREMAP_DONTUNMAP`.
    MoveAndKeep,
    Map,
    Expand,
    Brk,
}

/// One case. If `middle` is `None`, its place is free, and the call fills it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrangement {
    pub unit: Unit,
    pub family: Family,
    pub prev: Option<Neighbour>,
    pub middle: Option<Pages>,
    pub next: Option<Neighbour>,
    /// True if the middle was faulted at another address and moved to its place.
    ///
    /// Its page offset then does not fit its neighbours, unless a move changes page offsets. A huge
    /// middle is also faulted at an address at which no huge page fits.
    pub off_line: bool,
    pub call: Call,
}

fn states(unit: Unit, family: Family) -> &'static [Pages] {
    use Pages::*;
    const SMALL: [Pages; 10] = [
        Unfaulted,
        Own,
        Piece,
        Swapped,
        Ksm,
        Inherited,
        InheritedPiece,
        Rewritten,
        SwappedInherited,
        KsmInherited,
    ];
    const HUGE: [Pages; 4] = [Unfaulted, Own, Swapped, Inherited];
    match (unit, family) {
        (Unit::Small, Family::Alone) => &SMALL[..5],
        (Unit::Small, _) => &SMALL,
        (Unit::Huge, Family::Alone) => &HUGE[..3],
        (Unit::Huge, _) => &HUGE,
    }
}

const FAMILIES: [Family; 4] = [
    Family::Alone,
    Family::HasChild,
    Family::HasParent,
    Family::ParentGone,
];

impl Arrangement {
    /// Returns all arrangements.
    pub fn all() -> Vec<Arrangement> {
        let mut all = Vec::new();
        for unit in [Unit::Small, Unit::Huge] {
            for family in FAMILIES {
                let neighbours = neighbours(unit, family);
                for &prev in &neighbours {
                    for &next in &neighbours {
                        add_calls(unit, family, prev, next, &mut all);
                    }
                }
            }
        }
        all
    }

    /// Number of VMAs after the call if nothing merges.
    pub fn present(&self) -> usize {
        let kept = usize::from(self.call == Call::MoveAndKeep);
        let neighbours = usize::from(self.prev.is_some()) + usize::from(self.next.is_some());
        let cut = matches!(self.call, Call::ProtectLower | Call::ProtectUpper);
        neighbours + 1 + kept + usize::from(cut)
    }

    /// State of the pages of `prev`, `middle` and `next`.
    pub fn parts(&self) -> [Option<Pages>; 3] {
        [
            self.prev.map(|n| n.pages),
            self.middle,
            self.next.map(|n| n.pages),
        ]
    }
}

/// Returns no neighbour and a neighbour in each state.
///
/// Huge neighbours always have equal attributes; small neighbours cover the unequal ones.
fn neighbours(unit: Unit, family: Family) -> Vec<Option<Neighbour>> {
    let mut neighbours = vec![None];
    for &pages in states(unit, family) {
        for equal in [true, false] {
            if equal || unit == Unit::Small {
                neighbours.push(Some(Neighbour { pages, equal }));
            }
        }
    }
    neighbours
}

/// Adds every call between the two neighbours.
fn add_calls(
    unit: Unit,
    family: Family,
    prev: Option<Neighbour>,
    next: Option<Neighbour>,
    all: &mut Vec<Arrangement>,
) {
    use Call::*;
    let mut add = |middle, off_line, call| {
        all.push(Arrangement {
            unit,
            family,
            prev,
            middle,
            next,
            off_line,
            call,
        });
    };
    let with_middle = [
        ProtectWhole,
        ProtectLower,
        ProtectUpper,
        Advise,
        Lock,
        Bind,
        Move,
        MoveAndKeep,
    ];
    for call in with_middle {
        for &pages in states(unit, family) {
            add(Some(pages), false, call);
            if matches!(pages, Pages::Own | Pages::Swapped | Pages::Inherited) {
                add(Some(pages), true, call);
            }
        }
    }
    add(None, false, Map);
    if prev.is_some() {
        add(None, false, Expand);
        add(None, false, Brk);
    }
}
