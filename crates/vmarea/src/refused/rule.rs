//! Reasons without numbers: the rule that a call breaks, and what obeys it, in one table.

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident: $broken:literal, $remedy:literal;)*) => {
        /// A rule about arguments, files, permissions or the kinds of mappings.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = concat!("Broken if ", $broken, ".")] $name,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &'static [Rule] = &[$(Rule::$name,)*];

            /// Returns what breaks the rule.
            pub fn broken(self) -> &'static str {
                match self { $(Rule::$name => $broken),* }
            }

            /// Returns what would obey the rule.
            pub fn remedy(self) -> &'static str {
                match self { $(Rule::$name => $remedy),* }
            }
        }
    };
}

rules! {
    // Addresses and lengths.
    AlignedAddress: "the address is not a multiple of the page size",
        "pass the start of a page";
    AlignedOffset: "the offset in the file is not a multiple of the page size",
        "pass the offset of a page";
    AddressOfHugePage: "the address is not a multiple of the huge page size",
        "pass the start of a huge page";
    OffsetOfHugePage: "the offset in the file is not a multiple of the huge page size",
        "pass the offset of a huge page";
    WholeHugePages: "the range contains no whole huge page, or a part of one",
        "pass a range of whole huge pages";
    SomeLength: "the length is 0",
        "pass a length above 0";
    LengthFits: "the length is too large for any address space",
        "check how the program computes the length";
    EndFits: "the address and the length together exceed 64 bits",
        "check how the program computes the length";
    OffsetFits: "the end of the range is beyond what an offset in this file can be",
        "check how the program computes the offset";
    NotLastPage: "the address is in the last page of 64 bits, which Linux takes for an error number",
        "pass a lower address";
    RangesApart: "the old and the new range overlap",
        "move to a range apart from the old one, or through a third";
    AddressToReplace: "SHM_REMAP replaces what is mapped at an address, and none is given",
        "pass the address, or leave out SHM_REMAP";
    AboveHeap: "the new break is below the start of the heap",
        "pass an address above the start of the heap";

    // Flags.
    KnownFlags: "a flag is unknown, or contradicts another one",
        "pass only the flags of the manual page";
    KnownMapFlags: "MAP_SHARED_VALIDATE is set, and the file does not support a flag",
        "leave out the flag, or pass MAP_SHARED, which ignores it";
    MapType: "the flags name no type of mapping that this kernel has for this memory",
        "pass exactly one of MAP_PRIVATE and MAP_SHARED";
    KnownProtection: "a bit of the protection is unknown or not allowed here",
        "pass a combination of PROT_READ, PROT_WRITE and PROT_EXEC; remap_file_pages takes 0";
    OneDirection: "PROT_GROWSDOWN and PROT_GROWSUP are both set",
        "pass at most one of them";
    GrowsDown: "PROT_GROWSDOWN is set, and the mapping is not a stack that grows down",
        "leave out PROT_GROWSDOWN";
    GrowsUp: "PROT_GROWSUP is set, and no mapping grows up on this architecture",
        "leave out PROT_GROWSUP";
    GrowsDownPrivate: "MAP_GROWSDOWN is for private anonymous memory only",
        "leave out MAP_GROWSDOWN";
    Droppable: "MAP_DROPPABLE contradicts MAP_LOCKED, MAP_HUGETLB and MAP_GROWSDOWN",
        "leave out these flags";
    HugePagesOfFile: "MAP_HUGETLB is set for a file that is not on hugetlbfs",
        "leave out MAP_HUGETLB, or open a file on hugetlbfs";
    MayMove: "MREMAP_FIXED and MREMAP_DONTUNMAP need MREMAP_MAYMOVE",
        "add MREMAP_MAYMOVE";
    KeepsLength: "MREMAP_DONTUNMAP keeps the length, and the new length is another one",
        "pass the old length, and change it in another call";
    KnownAdvice: "the kernel does not know the advice",
        "test for it when the program starts, or run a newer kernel";
    AdviceForOthers: "process_madvise does not take this advice",
        "call madvise in the process itself";
    KnownOption: "the kernel does not know the option of prctl, or its arguments",
        "pass 0 for arguments that are not used, or run a newer kernel";
    KernelHasCall: "the kernel does not have the call",
        "run a newer kernel";
    MemoryPolicy: "the memory policy and its nodes contradict each other, or no such node exists",
        "pass nodes that exist, and none for MPOL_DEFAULT";

    // Files.
    OpenForReading: "the file is not open for reading",
        "open the file with O_RDONLY or O_RDWR";
    OpenForWriting: "a shared writable mapping needs a file that is open for writing, not only appending",
        "open the file with O_RDWR without O_APPEND, or pass MAP_PRIVATE";
    FileAllowsAccess: "the mapping can never have this access, because of how its file is open",
        "open the file for this access, and map it anew";
    NoExec: "the file is on a file system that is mounted with noexec",
        "leave out PROT_EXEC, or move the file";
    WriteSeal: "the file is sealed against writing (F_SEAL_WRITE)",
        "map it without PROT_WRITE, or pass MAP_PRIVATE";
    FileMaps: "the file, or the driver behind it, refused the mapping",
        "see what its file system or driver demands";
    HugePagesLeft: "no huge page of this size is left in the pool",
        "raise vm.nr_hugepages, or leave out MAP_HUGETLB";
    NamelessFile: "shared memory could not be created",
        "see the limits of tmpfs and of the machine's memory";
    SharedSecret: "memfd_secret memory can only be mapped shared",
        "pass MAP_SHARED";
    HolesInFile: "the file's file system did not punch the hole",
        "use a file system that can, such as tmpfs or ext4";

    // The kinds of mappings.
    WriteOrExecute: "PR_SET_MDWE forbids memory that is writable and executable, or becomes executable",
        "map code without PROT_WRITE from the start, or do not set PR_SET_MDWE";
    SharedCopy: "an old length of 0 asks for a second mapping of the same pages, and the mapping is private",
        "pass the old length, or map shared memory";
    CanBeEmptied: "MREMAP_DONTUNMAP does not work on a mapping of this kind",
        "leave out MREMAP_DONTUNMAP";
    CanGrow: "the mapping has a fixed size, as those of devices",
        "map the device anew with the new length";
    HugetlbGrows: "a mapping of hugetlb pages cannot grow",
        "map the file anew with the new length";
    MovesWithOthers: "the range covers several mappings, and one of them can only move alone",
        "move each mapping by a call of its own";
    Splits: "a mapping of this kind cannot be split there",
        "pass the whole mapping, or whole huge pages";
    OneSharedFile: "the range is not one shared mapping of one file",
        "pass a range inside one shared mapping of a file";
    Attached: "no segment of shared memory is attached at this address",
        "pass the address that shmat returned";
    TakesAdvice: "a mapping of this kind does not take the advice",
        "leave these mappings out of the range";
    NotLocked: "memory in the range is locked (mlock)",
        "unlock it first, or pass MADV_DONTNEED_LOCKED";
    PlainPages: "pages in the range are those of a device, of a special mapping, or not anonymous",
        "leave these mappings out of the range";
    HasFile: "MADV_REMOVE frees pages of a file, and the memory has none",
        "pass MADV_DONTNEED for anonymous memory";
    SharedWritable: "MADV_REMOVE needs a shared writable mapping",
        "map the file shared and writable";
    HugePagesAllowed: "huge pages are disabled for this memory",
        "see PR_SET_THP_DISABLE and MADV_NOHUGEPAGE";
    Collapses: "the pages could not become a huge page at that moment",
        "try again; pages in use elsewhere prevent it";
    Populated: "the protection of the memory forbids the access for which it is populated",
        "change the protection first";
    Accessible: "locked memory is made present, and pages of the range cannot be accessed",
        "leave PROT_NONE memory out of the range, or pass MLOCK_ONFAULT";
    PagesLeft: "pages of the range could not be made present",
        "leave out guard pages and what is beyond the end of a file; see how much memory is left";
    CanBeWatched: "userfaultfd cannot watch a mapping of this kind in this mode",
        "leave these mappings out of the range";
    WatchedIsWritable: "userfaultfd only watches memory that may become writable",
        "open the file for writing";
    WatchedByOther: "another userfaultfd, or another mode of this one, watches the memory",
        "unregister it first";

    // Permissions and keys.
    MayLock: "the process may not lock memory: RLIMIT_MEMLOCK is 0",
        "raise RLIMIT_MEMLOCK (ulimit -l), or give the process CAP_IPC_LOCK";
    SysNice: "the call needs CAP_SYS_NICE",
        "give the process CAP_SYS_NICE";
    SysResource: "the call needs CAP_SYS_RESOURCE",
        "give the process CAP_SYS_RESOURCE";
    MdweStays: "PR_SET_MDWE cannot be changed again",
        "set it once";
    PartsInOrder: "the parts of the program would be out of order, or exceed RLIMIT_DATA",
        "set them in the order of their addresses";
    AllocatedKey: "the protection key is not allocated",
        "pass a key that pkey_alloc returned";
    KeysLeft: "no protection key is left, or the processor has none",
        "share a key between mappings";
}
