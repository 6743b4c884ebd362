//! Linux's maple tree, from the library that `ci/checks/index/maple.sh` builds outside of this repository.

use super::map::Map;
use std::ffi::{CString, c_int, c_ulong, c_void};
use vmarea_range_tree::Entry;

type Tree = *mut c_void;
type Search = unsafe extern "C" fn(Tree, c_ulong, c_ulong, c_ulong, *mut c_ulong) -> c_int;

/// The library's functions; see `ci/checks/index/peer.c`.
#[derive(Clone, Copy)]
struct Calls {
    create: unsafe extern "C" fn() -> Tree,
    destroy: unsafe extern "C" fn(Tree),
    store: unsafe extern "C" fn(Tree, c_ulong, c_ulong, c_ulong) -> c_int,
    erase: unsafe extern "C" fn(Tree, c_ulong),
    find: unsafe extern "C" fn(Tree, c_ulong) -> c_ulong,
    gap_highest: Search,
    gap_lowest: Search,
}

pub struct Maple {
    calls: Calls,
    tree: Tree,
}

impl Maple {
    /// Loads the library that `VMAREA_MAPLE` names, and creates an empty tree.
    pub fn load() -> Option<Self> {
        let path = CString::new(std::env::var("VMAREA_MAPLE").ok()?).ok()?;
        // SAFETY: the path is a C string; the library has no initializers with preconditions.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "VMAREA_MAPLE: cannot load {path:?}");
        let symbol = |name: &str| {
            let name = CString::new(name).expect("no zero byte");
            // SAFETY: the library stays loaded, and the name is a C string.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(!found.is_null(), "VMAREA_MAPLE: no symbol {name:?}");
            found
        };
        // SAFETY: `ci/checks/index/peer.c` defines these functions with these types.
        let calls = unsafe {
            Calls {
                create: std::mem::transmute::<Tree, unsafe extern "C" fn() -> Tree>(symbol(
                    "peer_create",
                )),
                destroy: std::mem::transmute::<Tree, unsafe extern "C" fn(Tree)>(symbol(
                    "peer_destroy",
                )),
                store: std::mem::transmute::<
                    Tree,
                    unsafe extern "C" fn(Tree, c_ulong, c_ulong, c_ulong) -> c_int,
                >(symbol("peer_store")),
                erase: std::mem::transmute::<Tree, unsafe extern "C" fn(Tree, c_ulong)>(symbol(
                    "peer_erase",
                )),
                find: std::mem::transmute::<Tree, unsafe extern "C" fn(Tree, c_ulong) -> c_ulong>(
                    symbol("peer_find"),
                ),
                gap_highest: std::mem::transmute::<Tree, Search>(symbol("peer_gap_highest")),
                gap_lowest: std::mem::transmute::<Tree, Search>(symbol("peer_gap_lowest")),
            }
        };
        Some(Self::create(calls))
    }

    fn create(calls: Calls) -> Self {
        // SAFETY: the library's function has no preconditions.
        let tree = unsafe { (calls.create)() };
        assert!(!tree.is_null(), "no memory for a maple tree");
        Maple { calls, tree }
    }

    fn store(&self, e: Entry, value: u64) {
        // SAFETY: the tree lives until `self` is dropped, and one thread uses it.
        let failed = unsafe { (self.calls.store)(self.tree, e.start, e.end - 1, value) };
        assert_eq!(failed, 0, "mtree_store_range");
    }

    fn search(&self, call: Search, (low, high, len): (u64, u64, u64)) -> Option<u64> {
        let mut found = 0;
        // SAFETY: as in `store`; `found` is a variable of this function.
        let failed = unsafe { call(self.tree, low, high - 1, len, &mut found) };
        (failed == 0).then_some(found)
    }
}

impl Drop for Maple {
    fn drop(&mut self) {
        // SAFETY: the tree was created by the same library, and is not used any more.
        unsafe { (self.calls.destroy)(self.tree) }
    }
}

impl Map for Maple {
    fn another(&self) -> Self {
        Self::create(self.calls)
    }

    fn insert(&self, e: Entry) {
        self.store(e, e.value);
    }

    fn remove(&self, e: Entry) {
        // SAFETY: as in `store`.
        unsafe { (self.calls.erase)(self.tree, e.start) }
    }

    fn replace(&self, e: Entry) {
        self.remove(e);
        self.insert(e);
    }

    fn resize(&self, e: Entry, end: u64) {
        // A store over a range replaces the part that it covers.
        let tail = |start, end| Entry { start, end, ..e };
        if end < e.end {
            self.store(tail(end, e.end), 0);
        } else {
            self.store(tail(e.start, end), e.value);
        }
    }

    fn find(&self, addr: u64) -> Option<u64> {
        // SAFETY: as in `store`.
        let value = unsafe { (self.calls.find)(self.tree, addr) };
        (value != 0).then_some(value)
    }

    fn gap_highest(&self, low: u64, high: u64, len: u64) -> Option<u64> {
        self.search(self.calls.gap_highest, (low, high, len))
    }

    fn gap_lowest(&self, low: u64, high: u64, len: u64) -> Option<u64> {
        self.search(self.calls.gap_lowest, (low, high, len))
    }
}
