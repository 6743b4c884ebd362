//! `mmap`: creates a mapping.
//!
//! # Errors
//! EINVAL for a length of 0, an invalid type, or a GROWSDOWN file mapping; ENOMEM for lack of a
//! free range, the map limit, RLIMIT_AS, RLIMIT_DATA or the commit limit; EOVERFLOW if the file
//! offset overflows; EEXIST for FIXED_NOREPLACE over a mapping; EPERM for LOCKED without the right
//! to lock memory, an address below `mmap_min_addr`, a sealed VMA in the range, executing a file
//! from a `noexec` mount, or a write-sealed memfd; EAGAIN beyond RLIMIT_MEMLOCK; EACCES if the file
//! was not opened for the access, or `PR_SET_MDWE` denies it; ENODEV if the file cannot be mapped;
//! EOPNOTSUPP for unknown flags with SHARED_VALIDATE.
//!
//! # Linux
//! `mm/mmap.c` `do_mmap`, `mm/vma.c` `__mmap_region`, 6.18. Partial effects: a fixed mapping that
//! fails because of a limit or a seal has split the VMAs at the edges of its range; a fixed mapping
//! that its file refuses (SYNC on a file system without support) has unmapped the range.

mod flags;
mod part;
mod request;

pub use request::{MmapRequest, Placement};

use super::munmap::{Gathered, Pages};
use super::unmapped_area::{Room, pages_of};
use crate::Space;
use crate::mm::MmapGuard;
use crate::policy::rules::MmapLimits;
use crate::refused::{Growing, Rule};
use crate::types::VmaId;
use crate::types::call_flags::{MapFlags, MapType, Prot};
use crate::types::platform::{Environment, Platform};
use crate::types::writers::WriteToken;
use crate::types::{
    Errno, FileId, FileKind, MmId, Overcommit, PAGE_MASK, PAGE_SIZE, PMD_SIZE, PageOffsets, Pgoff,
    VmFlags, VmRange, page_align,
};
use crate::vma::merge::{CallKind, MergeScope, Proposal};
use crate::vma::{MappedFile, VmaBody};
use core::sync::atomic::Ordering;
use flags::{anonymous_flags, file_flags};

/// VMA flags of mappings that cannot be locked; such a mapping loses `VmFlags::LOCKED`.
const NEVER_LOCKED: VmFlags = VmFlags::SPECIAL
    .union(VmFlags::HUGETLB)
    .union(VmFlags::DROPPABLE);

impl<E: Environment> Space<E> {
    /// Creates a mapping, and returns its address.
    ///
    /// # Errors
    /// See the [module](crate::syscall::mmap).
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let at = space.mmap(mm, &MmapRequest::anonymous(4 * PAGE_SIZE))?;
    /// // A fixed mapping replaces what is there.
    /// let guard = MmapRequest {
    ///     addr: at,
    ///     prot: Prot::empty(),
    ///     flags: MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::FIXED,
    ///     ..MmapRequest::anonymous(PAGE_SIZE)
    /// };
    /// assert_eq!(space.mmap(mm, &guard)?, at);
    /// assert_eq!(space.maps(mm).count(), 2);
    /// let careful = MmapRequest { flags: guard.flags | MapFlags::FIXED_NOREPLACE, ..guard };
    /// assert_eq!(space.mmap(mm, &careful), Err(Errno::EEXIST));
    /// # Ok::<(), Errno>(())
    /// ```
    #[doc(alias = "do_mmap")]
    pub fn mmap(&self, mm: MmId, request: &MmapRequest) -> Result<u64, Errno> {
        let (range, populate) = {
            let request = request.in_pages_of_file();
            match self.mmap_in_part(mm, &request) {
                Some(mapped) => mapped?,
                None => {
                    let mut w = self.mmap_write_lock(mm).ok_or(Errno::ESRCH)?;
                    w.mmap(&request)?
                }
            }
        };
        if populate {
            self.mm_populate(mm, range);
        }
        Ok(range.start)
    }
}

impl<E: Environment> Space<E> {
    /// Returns the address that a mapping without FIXED would get now; creates no mapping.
    ///
    /// # Errors
    /// As [`mmap`](Self::mmap).
    ///
    /// ```
    /// # use vmarea::prelude::*;
    /// # let space = Space::new(Policy::LINUX, System::default());
    /// # let layout = Layout { mmap_base: 0x7fff_0000_0000, ..Layout::default() };
    /// # let mm = space.mm_create(layout, Limits::default())?;
    /// let request = MmapRequest::anonymous(PAGE_SIZE);
    /// let at = space.predict_mmap(mm, &request)?;
    /// assert_eq!(space.maps(mm).count(), 0);
    /// assert_eq!(space.mmap(mm, &request)?, at);
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn predict_mmap(&self, mm: MmId, request: &MmapRequest) -> Result<u64, Errno> {
        let r = self.mmap_read_lock(mm).ok_or(Errno::ESRCH)?;
        let request = request.in_pages_of_file();
        let place = (self.round_hint(request.addr), request.mapped_len(self)?);
        r.unmapped_area(&room(&request, request.flags, place))
    }

    /// Raises a nonzero address hint that is below the lowest mappable address to that address.
    #[doc(alias = "round_hint_to_min")]
    fn round_hint(&self, hint: u64) -> u64 {
        let hint = hint & PAGE_MASK;
        let min = self.system.lowest_addr();
        if hint != 0 && hint < min {
            page_align(min).unwrap_or(0)
        } else {
            hint
        }
    }
}

fn room(request: &MmapRequest, flags: MapFlags, (hint, len): (u64, u64)) -> Room {
    let kind = request.flags.map_type();
    let shared = matches!(kind, Some(MapType::Shared | MapType::SharedValidate));
    Room {
        file: request.file.map(|f| match f.kind {
            // A shared mapping of `/dev/zero` becomes a nameless file.
            FileKind::DevZero if shared => FileKind::SharedAnon,
            kind => kind,
        }),
        shared_anon: request.file.is_none() && kind == Some(MapType::Shared),
        hint,
        len,
        offset: request.offset,
        flags,
        vm_flags: VmFlags::empty(),
    }
}

impl<'s, E: Environment, T: WriteToken<'s, E::Wait>> MmapGuard<'s, E, T> {
    /// Creates a mapping like `mmap`, with the file offset given in pages.
    pub(crate) fn mmap_at_page(
        &mut self,
        request: &MmapRequest,
        pgoff: u64,
    ) -> Result<(VmRange, bool), Errno> {
        // A page offset that is too large to express in bytes is beyond the end of every file, but
        // other errors take precedence.
        let offset = pgoff.saturating_mul(PAGE_SIZE) & PAGE_MASK;
        self.mmap(&MmapRequest { offset, ..*request })
    }

    /// Creates a mapping; returns its range and whether its pages must be populated.
    fn mmap(&mut self, request: &MmapRequest) -> Result<(VmRange, bool), Errno> {
        let mut flags = request.flags;
        let len = request.mapped_len(self.space)?;
        let no_replace = flags.contains(MapFlags::FIXED_NOREPLACE);
        if no_replace {
            flags |= MapFlags::FIXED;
        }
        let mut hint = request.addr;
        if !flags.contains(MapFlags::FIXED) {
            hint = self.space.round_hint(hint);
        }
        if pages_of(request.offset)
            .checked_add(pages_of(len))
            .is_none()
        {
            return Err(self.space.refuse(Errno::EOVERFLOW, Rule::OffsetFits));
        }
        if self.state().map_count > self.space.system.max_map_count {
            return Err(self.refuse_mappings(Errno::ENOMEM, Growing::New));
        }
        let vm_flags = self.first_flags(request, flags)?;
        let room = room(request, flags, (hint, len));
        let addr = match request.placement {
            Placement::At(addr) if !flags.contains(MapFlags::FIXED) => addr,
            Placement::Arena(arena) => self.arena_area(&room, arena)?,
            _ => self.unmapped_area(&room)?,
        };
        let range = VmRange::of_len(addr, len)
            .ok_or_else(|| self.space.refuse(Errno::ENOMEM, Rule::EndFits))?;
        if no_replace && self.intersection(range).is_some() {
            return Err(self.refuse_occupied(Errno::EEXIST, range));
        }
        if flags.contains(MapFlags::LOCKED) && !self.can_mlock() {
            return Err(self.space.refuse(Errno::EPERM, Rule::MayLock));
        }
        if !self.mlock_future_ok(vm_flags, len) {
            return Err(self.refuse_memlock(Errno::EAGAIN, len));
        }
        let rules = &self.space.policy.rules;
        let (mut vm_flags, pgoff) = match request.file {
            Some(file) => (
                file_flags(self.space, &file, (request, len), vm_flags)?,
                Pgoff(pages_of(request.offset)),
            ),
            None if flags.map_type() == Some(MapType::Droppable) && !rules.map_droppable => {
                return Err(self.space.refuse(Errno::EINVAL, Rule::MapType));
            }
            None => anonymous_flags(self.space, flags, vm_flags, addr)?,
        };
        if flags.contains(MapFlags::NORESERVE) {
            let hugetlb = request.file.is_some_and(|f| f.kind == FileKind::Hugetlb);
            if hugetlb || !matches!(self.space.system.overcommit, Overcommit::Never(_)) {
                vm_flags |= VmFlags::NORESERVE;
            }
        }
        let offsets = PageOffsets::starting_at(pgoff, addr);
        self.mmap_region(range, vm_flags, offsets, request)?;
        let wanted = flags & (MapFlags::POPULATE | MapFlags::NONBLOCK) == MapFlags::POPULATE;
        Ok((range, wanted || vm_flags.contains(VmFlags::LOCKED)))
    }

    /// Converts a request's protection and flags, and the default flags, to VMA flags.
    fn first_flags(&mut self, request: &MmapRequest, flags: MapFlags) -> Result<VmFlags, Errno> {
        let mut bits = request.prot;
        let noexec = request.file.is_some_and(|f| f.is_noexec());
        if bits.contains(Prot::READ) && self.state().layout.read_implies_exec && !noexec {
            bits |= Prot::EXEC;
        }
        let pkey = if bits == Prot::EXEC {
            self.execute_only_pkey()
        } else {
            0
        };
        let mut vm_flags =
            VmFlags::from_prot(bits, pkey) | VmFlags::MAYRWX | self.state().def_flags;
        let rules = &self.space.policy.rules;
        for (when, then) in [
            (flags.contains(MapFlags::GROWSDOWN), VmFlags::GROWSDOWN),
            (flags.contains(MapFlags::LOCKED), VmFlags::LOCKED),
            (flags.contains(MapFlags::SYNC), VmFlags::SYNC),
            (
                flags.contains(MapFlags::STACK) && rules.map_stack_nohuge,
                VmFlags::NOHUGEPAGE,
            ),
        ] {
            if when {
                vm_flags |= then;
            }
        }
        Ok(vm_flags)
    }

    /// Maps a range whose address, VMA flags and page offsets have already been determined.
    #[doc(alias = "__mmap_region")]
    fn mmap_region(
        &mut self,
        range: VmRange,
        mut flags: VmFlags,
        offsets: PageOffsets,
        request: &MmapRequest,
    ) -> Result<(), Errno> {
        if self.state().layout.mdwe.denies(flags, flags) {
            return Err(self.space.refuse(Errno::EACCES, Rule::WriteOrExecute));
        }
        if request.file.is_some_and(|f| f.write_sealed) && flags.contains(VmFlags::SHARED_MAYWRITE)
        {
            return Err(self.space.refuse(Errno::EPERM, Rule::WriteSeal));
        }
        let gathered = match self.space.policy.rules.mmap_limits {
            MmapLimits::BeforeCutting => {
                self.check_limits(range, flags, self.mapped_pages(range))?;
                self.unmap_range(range).map_err(|_| Errno::ENOMEM)?;
                Gathered::default()
            }
            MmapLimits::AfterCutting => {
                let gathered = self.gather(range)?;
                self.check_limits(range, flags, gathered.pages)?;
                gathered
            }
        };
        let hugetlb = request.file.is_some_and(|f| f.kind == FileKind::Hugetlb);
        let accountable = !hugetlb && flags.is_accountable();
        if accountable {
            self.charge(range.pages().saturating_sub(gathered.accounted))?;
            flags |= VmFlags::ACCOUNT;
        } else {
            self.uncharge(gathered.accounted);
        }
        self.complete(range, gathered, Pages::Drop);
        let asked = self.ask_file(&mut flags, (range, offsets.pgoff_at(range.start)), request);
        let body = asked.and_then(|()| self.new_body(flags, range, request));
        let body = body.inspect_err(|_| {
            if accountable {
                self.uncharge(range.pages());
            }
        })?;
        let offsets = (self.space.policy.rules).anon_offsets(&body, offsets);
        let proposal = Proposal::unfaulted(range, offsets, body);
        self.call = CallKind::Mmap;
        let scope = match self.space.policy.rules.mmap_asks_next_first {
            true => MergeScope::NextFirst,
            false => MergeScope::Both,
        };
        self.insert_range(&proposal, Some(scope))
    }

    /// Merges a new, charged range with its neighbours as `scope` permits, or creates a VMA for the
    /// range; then accounts for the range. If `scope` is `None`, does not attempt a merge.
    pub(crate) fn insert_range(
        &mut self,
        proposal: &Proposal,
        scope: Option<MergeScope>,
    ) -> Result<(), Errno> {
        let Proposal { range, body, .. } = *proposal;
        let inserted = self.merge_or_create(proposal, scope);
        match inserted {
            Ok(()) => {
                self.mapped(range, proposal.offsets, &body);
                self.account_new(range, &body);
            }
            Err(_) if body.flags.contains(VmFlags::ACCOUNT) => self.uncharge(range.pages()),
            Err(_) => {}
        }
        inserted
    }

    fn merge_or_create(
        &mut self,
        proposal: &Proposal,
        scope: Option<MergeScope>,
    ) -> Result<(), Errno> {
        let merged = match scope {
            Some(scope) => self.merge(proposal, scope)?,
            None => None,
        };
        if merged.is_none() {
            self.reserve_in_index(1, proposal.range.start)?;
            let id = self.new_vma(proposal.range, proposal.offsets, proposal.body)?;
            self.link(id);
            self.add_to_ksm(id);
        }
        Ok(())
    }

    /// Simulates the file's `mmap` operation, which may refuse the mapping or change the flags.
    #[doc(alias = "mmap_file")]
    fn ask_file(
        &self,
        flags: &mut VmFlags,
        (range, pgoff): (VmRange, Pgoff),
        request: &MmapRequest,
    ) -> Result<(), Errno> {
        match request.file.map(|f| f.kind) {
            Some(FileKind::RegularHugeAligned) if flags.contains(VmFlags::SYNC) => {
                Err(self.space.refuse(Errno::EOPNOTSUPP, Rule::KnownMapFlags))
            }
            Some(FileKind::Hugetlb) if !pgoff.0.is_multiple_of(PMD_SIZE / PAGE_SIZE) => {
                Err(self.space.refuse(Errno::EINVAL, Rule::OffsetOfHugePage))
            }
            Some(FileKind::Secret) => {
                let shared = VmFlags::SHARED | VmFlags::MAYSHARE;
                let locked = match self.space.policy.rules.secret_locked {
                    true => VmFlags::LOCKED,
                    false => VmFlags::empty(),
                };
                if !flags.intersects(shared) {
                    return Err(self.space.refuse(Errno::EINVAL, Rule::SharedSecret));
                }
                if !self.mlock_future_ok(*flags | locked, range.len_bytes()) {
                    return Err(self.refuse_memlock(Errno::EAGAIN, range.len_bytes()));
                }
                *flags |= locked | VmFlags::DONTDUMP;
                Ok(())
            }
            _ => match request.refused {
                None => Ok(()),
                Some(errno) => {
                    let hugetlb = request.file.is_some_and(|f| f.kind == FileKind::Hugetlb);
                    let rule = match hugetlb {
                        true => Rule::HugePagesLeft,
                        false => Rule::FileMaps,
                    };
                    Err(self.space.refuse(errno, rule))
                }
            },
        }
    }

    /// Checks that the limits allow mapping `range`, in which `mapped` pages are already mapped.
    fn check_limits(&self, range: VmRange, flags: VmFlags, mapped: u64) -> Result<(), Errno> {
        let pages = range.pages().wrapping_sub(mapped);
        if self.may_expand(flags, pages) {
            Ok(())
        } else {
            Err(self.refuse_expansion(flags, pages))
        }
    }

    /// Returns the number of mapped pages in `range`.
    #[doc(alias = "count_vma_pages_range")]
    fn mapped_pages(&self, range: VmRange) -> u64 {
        let mut pages = 0;
        let mut at = range.start;
        while let Some(vma) = self.find(at).filter(|v| v.range.start < range.end) {
            pages += vma.range.clip(range).pages();
            at = vma.range.end;
        }
        pages
    }

    /// Sets the KSM flag of a new, unmerged VMA, unless it had to be set before the merge attempt.
    #[doc(alias = "ksm_add_vma")]
    fn add_to_ksm(&mut self, id: VmaId) {
        if self.state().layout.merge_any {
            let body = self.view(id).body;
            if is_ksm_compatible(body.flags) && !self.is_marked_first(body.file) {
                let flags = body.flags | VmFlags::MERGEABLE;
                self.set_body(id, VmaBody { flags, ..body });
            }
        }
    }

    /// Creates a nameless shmem file of `pages` pages for a new shared anonymous mapping.
    ///
    /// # Errors
    /// The platform's error if it cannot create the file.
    #[doc(alias = "shmem_zero_setup")]
    fn nameless_file(&mut self, pages: u64) -> Result<MappedFile, Errno> {
        let space = self.space;
        // ORDERING: Relaxed; the inode numbers only have to be unique.
        let number = FileId::NAMELESS + space.nameless.fetch_add(1, Ordering::Relaxed);
        self.files.keep(number)?;
        if let Err(errno) = space.platform.shared_anon(number, pages) {
            self.files.forget(number);
            return Err(space.refuse(errno, Rule::NamelessFile));
        }
        Ok(MappedFile {
            id: FileId(number),
            inode: number,
            kind: FileKind::SharedAnon,
        })
    }

    /// Returns the body of a new VMA, with the flags for hugetlb files and process-wide KSM.
    fn new_body(
        &mut self,
        mut flags: VmFlags,
        range: VmRange,
        request: &MmapRequest,
    ) -> Result<VmaBody, Errno> {
        let shared = flags.contains(VmFlags::SHARED);
        let file = match request.file {
            Some(file) if file.kind != FileKind::DevZero || !shared => {
                self.files.keep(file.inode)?;
                Some(MappedFile::from(&file))
            }
            _ if shared => Some(self.nameless_file(range.pages())?),
            _ => None,
        };
        if file.is_some_and(|f| f.kind == FileKind::Hugetlb) {
            flags |= VmFlags::HUGETLB | VmFlags::DONTEXPAND;
        }
        let merge_any = self.state().layout.merge_any && self.is_marked_first(file);
        if merge_any && is_ksm_compatible(flags) {
            flags |= VmFlags::MERGEABLE;
        }
        Ok(VmaBody {
            flags,
            file,
            ..VmaBody::default()
        })
    }

    /// True if a new mapping gets the KSM flag before a merge is attempted.
    ///
    /// Before 6.19 `/dev/zero` mappings are excluded, because their driver is called before the merge
    /// attempt and may change the mapping.
    #[doc(alias = "can_set_ksm_flags_early")]
    fn is_marked_first(&self, file: Option<MappedFile>) -> bool {
        let rules = &self.space.policy.rules;
        let zero = file.is_some_and(|f| f.kind == FileKind::DevZero);
        rules.ksm_flag_first && (!zero || rules.ksm_flag_first_on_zero)
    }

    /// Accounts for a new mapping; removes the lock flags if the mapping cannot be locked.
    #[doc(alias = "__mmap_complete")]
    pub(crate) fn account_new(&mut self, range: VmRange, body: &VmaBody) {
        self.stat_account(body.flags, range.pages() as i64);
        if body.flags.contains(VmFlags::LOCKED) {
            if body.flags.intersects(NEVER_LOCKED) {
                if let Some(v) = self.vma_lookup(range.start) {
                    let flags = v.body.flags - VmFlags::LOCKED_MASK;
                    self.set_body(v.id, VmaBody { flags, ..v.body });
                }
            } else {
                self.state_mut().locked_vm += range.pages();
            }
        }
        self.note_peak();
    }
}

/// True if KSM is allowed to scan a mapping with these flags.
#[doc(alias = "vma_ksm_compatible")]
pub(crate) fn is_ksm_compatible(flags: VmFlags) -> bool {
    let never = VmFlags::SHARED
        | VmFlags::MAYSHARE
        | VmFlags::SPECIAL
        | VmFlags::HUGETLB
        | VmFlags::DROPPABLE;
    !flags.intersects(never)
}
