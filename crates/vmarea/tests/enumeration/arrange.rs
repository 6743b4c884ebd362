//! The arrangements: related processes, neighbours with the state of their pages, and a call.

/// The related processes that exist during the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    Alone,
    /// There is a child; the parent makes the call.
    HasChild,
    /// The child makes the call.
    HasParent,
    /// There was a parent, which has exited; the child makes the call.
    ParentGone,
}

/// The state of a mapping's pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    Unfaulted,
    /// Faulted after the fork; the mapping has an anon_vma of its own.
    Own,
    /// Piece of a larger mapping faulted after the fork; all pieces share one anon_vma.
    Piece,
    /// Faulted before the fork.
    Inherited,
    /// Piece of a larger mapping faulted before the fork; all pieces share one anon_vma.
    InheritedPiece,
    /// Faulted before the fork, and written to again after the fork.
    Rewritten,
    /// Like `Own`, but the first page has been swapped out.
    Swapped,
    /// Like `Inherited`, but both pages were swapped out before the fork.
    SwappedInherited,
    /// Like `Own`, but KSM has merged the first page with an identical page.
    Ksm,
    /// Like `Inherited`, but after the fork KSM has merged the first page with an identical page.
    KsmInherited,
}

/// Half the size of a mapping in an arrangement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// One base page.
    Small,
    /// One huge page, or small pages of the same total size if the alignment prevents a huge page.
    Huge,
}

/// A neighbour of the middle mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    pub pages: Pages,
    /// True if the neighbour has the attributes that the call gives to the middle mapping.
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
    /// `mremap` with `MREMAP_DONTUNMAP`, which keeps the old mapping.
    MoveAndKeep,
    Map,
    Expand,
    Brk,
}

/// One case to test. If `middle` is `None`, the middle range is free, and the call maps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrangement {
    pub unit: Unit,
    pub family: Family,
    pub prev: Option<Neighbour>,
    pub middle: Option<Pages>,
    pub next: Option<Neighbour>,
    /// True if the middle mapping was faulted at another address and then moved to its place.
    ///
    /// The middle mapping's page offset is then not contiguous with its neighbours' page offsets,
    /// unless the policy changes page offsets in a move. A huge middle mapping is also faulted at
    /// an address at which no huge page can be mapped.
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

    /// Returns the number of VMAs after the call if nothing merges.
    pub fn present(&self) -> usize {
        let kept = usize::from(self.call == Call::MoveAndKeep);
        let neighbours = usize::from(self.prev.is_some()) + usize::from(self.next.is_some());
        let cut = matches!(self.call, Call::ProtectLower | Call::ProtectUpper);
        neighbours + 1 + kept + usize::from(cut)
    }

    /// Returns the states of the pages in `prev`, `middle` and `next`.
    pub fn parts(&self) -> [Option<Pages>; 3] {
        [
            self.prev.map(|n| n.pages),
            self.middle,
            self.next.map(|n| n.pages),
        ]
    }
}

/// Returns the possible neighbours: none, and one in each state.
///
/// Huge neighbours always have equal attributes; unequal attributes are covered by small
/// neighbours.
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

/// Adds the arrangements with these neighbours, one per call and state of the middle mapping.
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
