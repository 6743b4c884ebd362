//! The iterator program: its assembly, and the decoding of its records.
//!
//! Tables name the members of `mm_struct`, `vm_area_struct`, `anon_vma` and `mempolicy`. The
//! program is assembled from the tables, and records are decoded in table order. If the running
//! kernel lacks an optional member, the program writes 0 and the member is recorded as missing. The
//! mm record is written only once, before the record of the first VMA.
//!
//! Before 6.1, no iterator can be restricted to one process. On these kernels, the program runs for
//! every task, finds the task whose ID is in a BPF map, and walks the task's linked list of VMAs
//! (which later kernels replaced by a tree).

use vmarea_linux_sys::bpf::{Assembler, LoadError, Number, Program, Reg, Width};
use vmarea_linux_sys::btf::{Btf, Kind, TypeId};

use super::{MmFields, ViewError, ViewVma};

/// Whether the running kernel may lack a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Need {
    /// Required: the program cannot be loaded if the kernel lacks the member.
    Always,
    /// Optional: a missing member is reported as `None`.
    IfThere,
}
use Need::{Always, IfThere};

/// Number of words in an mm record: the pointer itself and the members in [`MM`].
pub(super) const MM_WORDS: usize = 1 + MM.len();
/// Number of words in a VMA record: the members in [`VMA`], [`ANON_VMA`] and [`MEMPOLICY`].
pub(super) const VMA_WORDS: usize = VMA.len() + ANON_VMA.len() + MEMPOLICY.len();

const MM: [(&str, Need); 17] = [
    ("mmap_base", IfThere),
    ("start_brk", IfThere),
    ("brk", IfThere),
    ("start_data", IfThere),
    ("end_data", IfThere),
    ("start_stack", IfThere),
    ("def_flags", IfThere),
    ("total_vm", IfThere),
    ("locked_vm", IfThere),
    ("map_count", IfThere),
    ("flags", IfThere),
    ("start_code", IfThere),
    ("end_code", IfThere),
    ("arg_start", IfThere),
    ("arg_end", IfThere),
    ("env_start", IfThere),
    ("env_end", IfThere),
];

const VMA: [(&str, Need); 13] = [
    ("vm_start", Always),
    ("vm_end", Always),
    ("vm_pgoff", Always),
    ("vm_flags", Always),
    ("anon_vma", Always),
    ("anon_vma_chain.next", Always),
    ("anon_vma_chain.prev", Always),
    ("vm_file", Always),
    ("vm_ops", Always),
    ("vm_policy", IfThere),
    ("vm_userfaultfd_ctx.ctx", IfThere),
    ("__vm_anon_pgoff_lo", IfThere),
    ("__vm_anon_pgoff_hi", IfThere),
];

const ANON_VMA: [(&str, Need); 3] = [
    ("root", Always),
    ("num_children", IfThere),
    ("num_active_vmas", IfThere),
];

/// Members of a memory policy that are compared. Only the first 64 nodes of the node mask are read.
const MEMPOLICY: [(&str, Need); 4] = [
    ("mode", IfThere),
    ("flags", IfThere),
    ("nodes.bits", IfThere),
    ("home_node", IfThere),
];

/// Bit mask of the members that the running kernel lacks, by position in the records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Missing {
    mm: u32,
    vma: u32,
}

impl Missing {
    /// Decodes an mm record.
    pub(super) fn mm_fields(&self, words: [u64; MM_WORDS]) -> MmFields {
        let known = |at: usize| (self.mm >> at & 1 == 0).then_some(words[at]);
        MmFields {
            mm: words[0],
            mmap_base: known(1),
            start_brk: known(2),
            brk: known(3),
            start_data: known(4),
            end_data: known(5),
            start_stack: known(6),
            def_flags: known(7),
            total_vm: known(8),
            locked_vm: known(9),
            map_count: known(10),
            flags: known(11),
            start_code: known(12),
            end_code: known(13),
            arg_start: known(14),
            arg_end: known(15),
            env_start: known(16),
            env_end: known(17),
        }
    }

    /// Decodes a VMA record.
    pub(super) fn vma(&self, words: [u64; VMA_WORDS]) -> ViewVma {
        let known = |at: usize| (self.vma >> at & 1 == 0).then_some(words[at]);
        let [
            start,
            end,
            pgoff,
            flags,
            anon_vma,
            next,
            prev,
            file,
            ops,
            ..,
        ] = words;
        let has_anon_vma = anon_vma != 0;
        ViewVma {
            start,
            end,
            pgoff,
            flags,
            anon_vma,
            // The chain is a circular list: with zero or one entry, both neighbours are the same.
            chain_singular: next == prev,
            file,
            ops,
            policy: known(9),
            uffd: known(10),
            anon_pgoff: known(11).map(|low| low | known(12).unwrap_or(0) << 32),
            root: if has_anon_vma { words[13] } else { 0 },
            num_children: known(14).filter(|_| has_anon_vma),
            num_active_vmas: known(15).filter(|_| has_anon_vma),
            policy_terms: std::array::from_fn(|n| known(16 + n).unwrap_or(0)),
        }
    }
}

/// Returns the first `N` words of the records and the remaining bytes.
pub(super) fn take_words<const N: usize>(bytes: &[u8]) -> Option<([u64; N], &[u8])> {
    let (record, rest) = bytes.split_at_checked(N * 8)?;
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(record.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().ok()?);
    }
    Some((words, rest))
}

/// Maximum number of VMAs that the program for linked lists can write in one read.
pub(super) const LISTED: usize = super::VMAS_PER_READ;

/// A loaded program.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) program: Program,
    pub(super) missing: Missing,
    /// ID of the process to read, if the program itself must find the task.
    pub(super) wanted: Option<Number>,
}

/// Assembles and loads the program.
pub(super) fn load(btf: &Btf) -> Result<Loaded, ViewError> {
    let absent = |what: &str| ViewError::TooOld(format!("no {what}"));
    let refused = |LoadError { cause, verdict }| match cause.raw_os_error() {
        Some(libc::EPERM) => ViewError::Permission,
        Some(libc::ENOSYS) => absent("bpf(2)"),
        _ => ViewError::Refused { cause, verdict },
    };
    let target = |name: &str| btf.find(Kind::Func, name);
    let has_list = btf
        .find(Kind::Struct, "mm_struct")
        .is_some_and(|mm| btf.member(mm, "mmap").is_some());
    let (code, missing, target, wanted) = match target("bpf_iter_task_vma") {
        // Kernels with the linked list lack the `task_vma` iterator or cannot restrict it.
        Some(target) if !has_list => {
            let (code, missing) = assemble(btf)?;
            (code, missing, target, None)
        }
        _ => {
            let target = target("bpf_iter_task").ok_or_else(|| absent("task iterator"))?;
            let number = Number::new().map_err(|cause| {
                let verdict = "no map".to_owned();
                refused(LoadError { cause, verdict })
            })?;
            let (code, missing) = assemble_listed(btf, &number)?;
            (code, missing, target, Some(number))
        }
    };
    // The helper that writes to the reader requires a GPL-compatible licence.
    let program = Program::load(&code, c"vmarea_view", c"Dual MIT/GPL", target).map_err(refused)?;
    Ok(Loaded {
        program,
        missing,
        wanted,
    })
}

/// Assembles the program that runs for each task, finds the wanted task and walks its list of VMAs.
fn assemble_listed(btf: &Btf, wanted: &Number) -> Result<(Assembler, Missing), ViewError> {
    let ctx = Source::new(btf, "bpf_iter__task")?;
    let meta = Source::new(btf, "bpf_iter_meta")?;
    let task = Source::new(btf, "task_struct")?;
    let mm = Source::new(btf, "mm_struct")?;
    let vma = Source::new(btf, "vm_area_struct")?;
    let mut missing = Missing::default();
    let mut code = Assembler::default();

    // R6: the seq_file to write to. R7: the mm, then the anon_vma. R8: the task, then the VMA. R9:
    // number of remaining VMAs.
    ctx.load(&mut code, "task", Reg::R8, Reg::R1)?;
    ctx.load(&mut code, "meta", Reg::R2, Reg::R1)?;
    let at_end = code.jump_if_zero(Reg::R8);
    meta.load(&mut code, "seq", Reg::R6, Reg::R2)?;
    code.find(wanted);
    let no_number = code.jump_if_zero(Reg::R0);
    code.load(Width::Double, Reg::R1, Reg::R0, 0);
    task.load(&mut code, "pid", Reg::R2, Reg::R8)?;
    let other = code.jump_unless_same(Reg::R1, Reg::R2);
    task.load(&mut code, "mm", Reg::R7, Reg::R8)?;
    let no_mm = code.jump_if_zero(Reg::R7);

    mm.load(&mut code, "mmap", Reg::R8, Reg::R7)?;
    let mut record = Record::new(MM_WORDS);
    record.push(&mut code, Reg::R7);
    missing.mm = record.members(&mut code, &mm, &MM, Reg::R7)?;
    record.write(&mut code);
    code.set(Reg::R9, LISTED as i32);
    let next = code.here();
    let last = code.jump_if_zero(Reg::R8);
    missing.vma = write_vma(&mut code, btf, &vma)?;
    vma.load(&mut code, "vm_next", Reg::R8, Reg::R8)?;
    code.add(Reg::R9, -1);
    code.back_unless_zero(Reg::R9, next);

    for jump in [at_end, no_number, other, no_mm, last] {
        code.land(jump);
    }
    code.exit();
    Ok((code, missing))
}

/// Emits code that writes the record of the VMA in R8; returns the mask of missing members.
fn write_vma(code: &mut Assembler, btf: &Btf, vma: &Source<'_>) -> Result<u32, ViewError> {
    let anon_vma = Source::new(btf, "anon_vma")?;
    let mut record = Record::new(VMA_WORDS);
    let mut missing = record.members(code, vma, &VMA, Reg::R8)?;
    // If there is no anon_vma, loads through the null pointer return 0.
    vma.load(code, "anon_vma", Reg::R7, Reg::R8)?;
    missing |= record.members(code, &anon_vma, &ANON_VMA, Reg::R7)?;
    missing |= policy_terms(code, btf, vma, &mut record)?;
    record.write(code);
    Ok(missing)
}

/// Assembles the program that runs for each VMA of one process.
fn assemble(btf: &Btf) -> Result<(Assembler, Missing), ViewError> {
    let ctx = Source::new(btf, "bpf_iter__task_vma")?;
    let meta = Source::new(btf, "bpf_iter_meta")?;
    let mm = Source::new(btf, "mm_struct")?;
    let vma = Source::new(btf, "vm_area_struct")?;
    let mut missing = Missing::default();
    let mut code = Assembler::default();

    // R6: the seq_file to write to. R7: the mm, then the anon_vma. R8: the VMA.
    ctx.load(&mut code, "vma", Reg::R8, Reg::R1)?;
    ctx.load(&mut code, "meta", Reg::R2, Reg::R1)?;
    let at_end = code.jump_if_zero(Reg::R8);
    meta.load(&mut code, "seq", Reg::R6, Reg::R2)?;
    meta.load(&mut code, "seq_num", Reg::R3, Reg::R2)?;
    let not_first = code.jump_unless_zero(Reg::R3);

    let mut record = Record::new(MM_WORDS);
    vma.load(&mut code, "vm_mm", Reg::R7, Reg::R8)?;
    record.push(&mut code, Reg::R7);
    missing.mm = record.members(&mut code, &mm, &MM, Reg::R7)?;
    record.write(&mut code);
    code.land(not_first);

    missing.vma = write_vma(&mut code, btf, &vma)?;
    code.land(at_end);
    code.exit();
    Ok((code, missing))
}

/// Emits code that appends the members of the memory policy of the VMA in R8 to the record; all of
/// them count as missing if the kernel has no memory policies.
fn policy_terms(
    code: &mut Assembler,
    btf: &Btf,
    vma: &Source<'_>,
    record: &mut Record,
) -> Result<u32, ViewError> {
    let source = Source::new(btf, "mempolicy").ok();
    match source.filter(|_| vma.try_load(code, "vm_policy", Reg::R7, Reg::R8)) {
        // Loads through a null pointer return 0.
        Some(policy) => record.members(code, &policy, &MEMPOLICY, Reg::R7),
        None => Ok(record.absent(code, MEMPOLICY.len())),
    }
}

/// A kernel struct whose members are loaded.
struct Source<'a> {
    btf: &'a Btf,
    name: &'static str,
    id: TypeId,
}

impl<'a> Source<'a> {
    fn new(btf: &'a Btf, name: &'static str) -> Result<Source<'a>, ViewError> {
        let id = btf
            .find(Kind::Struct, name)
            .ok_or_else(|| ViewError::TooOld(format!("no struct {name}")))?;
        Ok(Source { btf, name, id })
    }

    /// Emits code for `dst = src->member`; returns false if the member does not exist.
    fn try_load(&self, code: &mut Assembler, member: &str, dst: Reg, src: Reg) -> bool {
        let place = self.btf.member(self.id, member).and_then(|place| {
            // Only the first word of a bitmap is read.
            let width = Width::of(place.size.min(8))?;
            Some((width, i16::try_from(place.offset).ok()?))
        });
        match place {
            Some((width, offset)) => {
                code.load(width, dst, src, offset);
                true
            }
            None => false,
        }
    }

    fn load(
        &self,
        code: &mut Assembler,
        member: &str,
        dst: Reg,
        src: Reg,
    ) -> Result<(), ViewError> {
        if self.try_load(code, member, dst, src) {
            Ok(())
        } else {
            Err(ViewError::TooOld(format!("no {member} in {}", self.name)))
        }
    }
}

/// A record under construction on the program's stack.
struct Record {
    words: usize,
    written: usize,
}

impl Record {
    fn new(words: usize) -> Record {
        Record { words, written: 0 }
    }

    fn bottom(&self) -> i32 {
        -(self.words as i32 * 8)
    }

    /// Emits code that appends `value` to the record.
    fn push(&mut self, code: &mut Assembler, value: Reg) {
        let place = self.bottom() + self.written as i32 * 8;
        code.store(Reg::Frame, place as i16, value);
        self.written += 1;
    }

    /// Emits code that appends members of the struct at `from` to the record.
    ///
    /// Returns a bit mask of the missing members, by position in the record.
    fn members(
        &mut self,
        code: &mut Assembler,
        source: &Source<'_>,
        table: &[(&str, Need)],
        from: Reg,
    ) -> Result<u32, ViewError> {
        let mut missing = 0;
        for &(member, need) in table {
            match need {
                Always => source.load(code, member, Reg::R1, from)?,
                IfThere => {
                    if !source.try_load(code, member, Reg::R1, from) {
                        missing |= self.absent(code, 1);
                        continue;
                    }
                }
            }
            self.push(code, Reg::R1);
        }
        Ok(missing)
    }

    /// Emits code that appends `words` zero words for missing members; returns their bit mask.
    fn absent(&mut self, code: &mut Assembler, words: usize) -> u32 {
        let missing = ((1 << words) - 1) << self.written;
        code.set(Reg::R1, 0);
        for _ in 0..words {
            self.push(code, Reg::R1);
        }
        missing
    }

    fn write(&self, code: &mut Assembler) {
        debug_assert_eq!(self.written, self.words);
        let len = self.words as i32 * 8;
        code.write_to_reader(Reg::R6, self.bottom(), len);
    }
}
