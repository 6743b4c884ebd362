//! The arrangements: who else there is, what the neighbours are like, and which call is made.

/// Who else there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    Alone,
    /// The calls are made by the parent.
    HasChild,
    /// By the child.
    HasParent,
    /// By the child, and the parent has gone.
    ParentGone,
}

/// The pages of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    Unfaulted,
    /// An anon_vma of its own, made after the fork.
    Own,
    /// A piece of a mapping that others are pieces of, faulted after the fork.
    Piece,
    /// Of before the fork.
    Inherited,
    /// A piece of a mapping that others are pieces of, faulted before the fork.
    InheritedPiece,
    /// Of before the fork, and written again after it.
    Rewritten,
    /// As `Own`, the first page swapped out.
    Swapped,
    /// As `Inherited`, both pages swapped out before the fork.
    SwappedInherited,
    /// As `Own`, the first page one with an equal page elsewhere (KSM).
    Ksm,
    /// As `Inherited`, the first page one with an equal page elsewhere since the fork.
    KsmInherited,
}

/// How large a neighbour is: two of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A page.
    Small,
    /// A huge page, wherever the alignment allows one.
    Huge,
}

/// A neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    pub pages: Pages,
    /// Has what the call gives the middle.
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
    /// With DONTUNMAP.
    MoveAndKeep,
    Map,
    Expand,
    Brk,
}

/// One case. No middle: its place is free, and the call fills it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrangement {
    pub unit: Unit,
    pub family: Family,
    pub prev: Option<Neighbour>,
    pub middle: Option<Pages>,
    pub next: Option<Neighbour>,
    /// The middle comes from elsewhere, so that its page offset is another where moves do not change it;
    /// if it is huge, from where huge pages lie otherwise.
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
    /// All of them.
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

    /// VMAs that there would be if nothing ever merged.
    pub fn present(&self) -> usize {
        let kept = usize::from(self.call == Call::MoveAndKeep);
        let neighbours = usize::from(self.prev.is_some()) + usize::from(self.next.is_some());
        let cut = matches!(self.call, Call::ProtectLower | Call::ProtectUpper);
        neighbours + 1 + kept + usize::from(cut)
    }

    /// The pages of prev, middle and next.
    pub fn parts(&self) -> [Option<Pages>; 3] {
        [
            self.prev.map(|n| n.pages),
            self.middle,
            self.next.map(|n| n.pages),
        ]
    }
}

/// None, or pages in each state. Huge neighbours are equal ones: of the others the small say enough.
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

/// Every call between two neighbours.
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
