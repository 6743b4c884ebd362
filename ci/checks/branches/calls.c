// Makes system calls as the kernel's code around mm/vma.c does: mm/mmap.c, mprotect.c, madvise.c, mlock.c, mseal.c,
// mempolicy.c, mremap.c, userfaultfd.c, ipc/shm.c. What that code decides, such as permissions and the flags of a VMA,
// comes from the list after the step; mm/vma.c decides which VMAs are split, merged and removed.
#include "calls.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const struct row *row_at(const struct list *list, unsigned long addr)
{
	size_t low = 0, high = list->count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (list->rows[middle].end <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low < list->count && list->rows[low].start <= addr ? &list->rows[low] : NULL;
}

void insert_row(struct mm_struct *mm, const struct row *row)
{
	VMA_ITERATOR(vmi, mm, row->start);
	struct vm_area_struct *vma = vm_area_alloc(mm);

	vma_set_range(vma, row->start, row->end, row->pgoff);
	vma->flags.__vma_flags[0] = row->flags;
	vma->vm_file = file_of(row->file, row->kind);
	vma->vm_ops = ops_of(row->kind, row->flags & VM_SHARED);
	vma->vm_policy = (void *)row->policy;
	vma->vm_userfaultfd_ctx.id = row->uffd;
	if (row->anon)
		set_anon(vma, anon_of(row->anon), row->singular);
	if (vma_iter_store_gfp(&vmi, vma, GFP_KERNEL))
		abort();
	mm->map_count++;
}

bool succeeded(const struct call *call)
{
	return call->step->outcome == 'v';
}

void returned(struct call *call, long got)
{
	call->compared = true;
	call->got = got;
	call->expected = succeeded(call) ? 0 : -(long)call->step->result;
}

struct vm_area_struct *find(struct mm_struct *mm, unsigned long addr)
{
	VMA_ITERATOR(vmi, mm, addr);

	return vma_find(&vmi, ULONG_MAX);
}

bool is_mapped(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	struct vm_area_struct *vma = find(mm, start);

	return vma && vma->vm_start < end;
}

bool is_mapped_after(const struct call *call, unsigned long start, unsigned long end)
{
	size_t n;

	for (n = 0; n < call->after->count; n++)
		if (call->after->rows[n].start < end && start < call->after->rows[n].end)
			return true;
	return false;
}

bool has_sealed(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	VMA_ITERATOR(vmi, mm, start);
	struct vm_area_struct *vma;

	for_each_vma_range(vmi, vma, end)
		if (vma->vm_flags & VM_SEALED)
			return true;
	return false;
}

// Whether the end of a range lies in a VMA whose file or maker lets it not be split there.
bool is_unsplittable(const struct call *call, unsigned long start, unsigned long end)
{
	const struct row *row = row_at(call->after, start);
	unsigned long ends[] = { start, end };
	size_t n;

	// The VMA at the start has been split, or else another check has refused the call.
	for (n = 0; n < 2; n++) {
		struct vm_area_struct *vma = find(call->mm, ends[n]);

		if (vma && vma->vm_start < ends[n] && vma->vm_ops && vma->vm_ops->may_split &&
		    vma->vm_ops->may_split(vma, ends[n]))
			return n == 0 || !row || row->start >= start;
	}
	return false;
}

long unmap(struct mm_struct *mm, unsigned long start, unsigned long len)
{
	LIST_HEAD(watched);
	VMA_ITERATOR(vmi, mm, start);

	return do_vmi_munmap(&vmi, mm, start, len, &watched, false);
}

// Changes of flags, policies and contexts.

unsigned long set_flags(struct vm_area_struct *vma, unsigned long flags)
{
	return vma->flags.__vma_flags[0] = flags;
}

// What the call would set if it did not fail; only the limit on mappings has to refuse it.
static unsigned long wanted_flags(const struct step *step, unsigned long flags)
{
	if (strstr(step->name, "mprotect"))
		return (flags & ~7ul) | (step->args[2] & 7);
	if (!strncmp(step->name, "mlock", 5))
		return flags | VM_LOCKED;
	if (!strncmp(step->name, "munlock", 7))
		return flags & ~VM_LOCKED;
	return flags ^ VM_DONTDUMP;
}

static struct vm_area_struct *modify_piece(struct vma_iterator *vmi, struct vm_area_struct *prev,
					   struct vm_area_struct *vma, unsigned long start, unsigned long end,
					   const struct row *row)
{
	vma_flags_t flags = { { row->flags } };
	struct vm_userfaultfd_ctx context = { row->uffd };

	if (row->uffd != vma->vm_userfaultfd_ctx.id)
		return vma_modify_flags_uffd(vmi, prev, vma, start, end, &flags, context, false);
	if (row->policy != (unsigned long)vma->vm_policy)
		return vma_modify_policy(vmi, prev, vma, start, end, (void *)row->policy);
	return vma_modify_flags(vmi, prev, vma, start, end, &flags);
}

// Walks the VMAs of a range as mprotect and its like do, and changes each as the list after the step says.
static void modify(struct call *call, unsigned long start, unsigned long end)
{
	VMA_ITERATOR(vmi, call->mm, start);
	struct vm_area_struct *vma = vma_find(&vmi, end), *prev;

	if (!vma)
		return;
	prev = vma_prev(&vmi);
	if (start > vma->vm_start)
		prev = vma;
	vma_iter_set(&vmi, start);
	for_each_vma_range(vmi, vma, end) {
		unsigned long from = max(start, vma->vm_start), to = min(end, vma->vm_end);
		const struct row *row = row_at(call->after, from);
		struct row wanted;

		if (!row)
			return;
		wanted = *row;
		if (!((row->flags ^ vma->vm_flags) & ~STICKY) && row->uffd == vma->vm_userfaultfd_ctx.id &&
		    row->policy == (unsigned long)vma->vm_policy) {
			// The limit on mappings may have kept the call from changing this VMA.
			if (succeeded(call) || call->mm->map_count < sysctl_max_map_count ||
			    (from == vma->vm_start && to == vma->vm_end)) {
				prev = vma;
				continue;
			}
			if (call->step->result != ENOMEM && call->step->result != EAGAIN)
				return;
			wanted.flags = wanted_flags(call->step, vma->vm_flags);
		}
		vma = modify_piece(&vmi, prev, vma, from, to, &wanted);
		if (IS_ERR(vma))
			return;
		set_flags(vma, wanted.flags);
		vma->vm_userfaultfd_ctx.id = wanted.uffd;
		vma->vm_policy = (void *)wanted.policy;
		prev = vma;
	}
}

static void modify_len(struct call *call, unsigned long start, unsigned long len)
{
	unsigned long end = PAGE_ALIGN(start + len);

	start &= PAGE_MASK;
	if (end > start)
		modify(call, start, end);
}

static void change(struct call *call)
{
	const struct step *step = call->step;
	unsigned long start = step->args[0], len = step->args[1];

	if (strstr(step->name, "mprotect") && step->args[2] & PROT_GROWSDOWN) {
		struct vm_area_struct *vma = find(call->mm, start);

		if (vma && vma->vm_start < start) {
			len += start - vma->vm_start;
			start = vma->vm_start;
		}
	}
	modify_len(call, start, len);
}

static void change_all(struct call *call)
{
	modify(call, 0, TASK_SIZE);
}

static void advise_ranges(struct call *call)
{
	size_t n;

	for (n = 0; n + 1 < call->step->words; n += 2)
		modify_len(call, call->step->data[n], call->step->data[n + 1]);
}

static void watch(struct call *call)
{
	if (call->step->words >= 2)
		modify_len(call, call->step->data[0], call->step->data[1]);
}

// Mappings.

static void map(struct call *call, struct file *file, unsigned long addr, unsigned long len, unsigned long flags,
		unsigned long pgoff)
{
	LIST_HEAD(watched);
	unsigned long got = mmap_region(file, addr, len, flags, pgoff, &watched);

	returned(call, got == addr ? 0 : (long)got);
}

static void map_found(struct call *call, unsigned long addr, unsigned long len, unsigned long pgoff)
{
	const struct row *row = row_at(call->after, addr);
	struct file *file;
	unsigned long flags;

	if (!row)
		return;
	// What cannot be locked loses the flag when it is mapped.
	flags = (row->flags & ~OWN) | (call->mm->def_flags & VM_LOCKED);
	if (!strcmp(call->step->name, "mmap") && call->step->args[3] & MAP_LOCKED)
		flags |= VM_LOCKED;
	file = file_of(row->file, row->kind);
	acting.ksm = row->flags & VM_MERGEABLE;
	if (row->kind == SHARED_ANON) {
		// The file is made while the mapping is; before, there is none, or /dev/zero.
		acting.hook_file = file;
		file = call->step->args[3] & MAP_ANONYMOUS ? NULL : file_of(ULONG_MAX, DEV_ZERO);
	}
	map(call, file, addr, len, flags, pgoff);
	if (!call->got && row->kind == SHARED_ANON) {
		// The hook of an mmap without a file sets this, before the VMA is visible.
		struct vm_area_struct *vma = find(call->mm, addr);

		vma->vm_file = acting.hook_file;
	}
}

// Makes an mmap that failed, if its error comes from mm/vma.c or from the file's hook.
static void map_refused(struct call *call)
{
	const unsigned long *args = call->step->args;
	unsigned long addr = args[0], len = PAGE_ALIGN(args[1]), error = call->step->result;
	unsigned long flags = (args[2] & 7) | VM_MAYREAD | VM_MAYWRITE | VM_MAYEXEC | (args[3] & MAP_SHARED ? VM_SHARED : 0);
	// lab/conform/src/arena.rs numbers the files.
	static const enum kind kinds[] = { REGULAR, REGULAR, REGULAR, SHMEM, DEV_ZERO, SECRET, HUGETLB };
	enum kind kind = args[4] < ARRAY_SIZE(kinds) ? kinds[args[4]] : REGULAR;
	struct file *file = args[3] & MAP_ANONYMOUS ? NULL : file_of(-2ul - kind, kind);
	vma_flags_t bits = { { flags } };
	bool split, accounted = (flags & (VM_WRITE | VM_SHARED)) == VM_WRITE && !(args[3] & MAP_NORESERVE);

	if (args[3] & MAP_NORESERVE)
		flags |= VM_NORESERVE;
	if (!(args[3] & MAP_FIXED) || addr & ~PAGE_MASK || !len || addr + len < addr || addr + len > TASK_SIZE)
		return;
	if (call->mm->map_count > sysctl_max_map_count)
		return;
	split = is_mapped(call->mm, addr, addr + len);
	if ((error == EPERM && has_sealed(call->mm, addr, addr + len)) ||
	    (error == EINVAL && is_unsplittable(call, addr, addr + len)))
		map(call, file, addr, len, flags, args[5] >> PAGE_SHIFT);
	else if (split && !is_mapped_after(call, addr, addr + len)) {
		acting.hook_error = error;
		map(call, file ? file : file_of(-2ul - HUGETLB, HUGETLB), addr, len, flags, args[5] >> PAGE_SHIFT);
	} else if (error == ENOMEM && (!may_expand_vm(call->mm, &bits, len >> PAGE_SHIFT) ||
				       (accounted && security_vm_enough_memory_mm(call->mm, len >> PAGE_SHIFT)))) {
		const struct row *first = row_at(call->after, addr), *last = row_at(call->after, addr + len);

		// An mmap that mm/vma.c refuses has split the VMAs at the ends of its range.
		if ((!first || first->start >= addr) && (!last || last->start >= addr + len))
			map(call, file, addr, len, flags, args[5] >> PAGE_SHIFT);
	} else if (error == EACCES && call->process->write_xor_exec && (args[2] & 6) == 6)
		map(call, file, addr, len, flags, args[5] >> PAGE_SHIFT);
}

static void mmap_call(struct call *call)
{
	const unsigned long *args = call->step->args;
	unsigned long addr = call->step->result, len = PAGE_ALIGN(args[1]);
	const struct row *row;

	if (!succeeded(call)) {
		map_refused(call);
		return;
	}
	row = row_at(call->after, addr);
	if (row && row->kind == HUGETLB)
		len = (len + HUGE - 1) & ~(HUGE - 1);
	if (!(args[3] & MAP_ANONYMOUS) || (row && row->kind == HUGETLB))
		map_found(call, addr, len, args[5] >> PAGE_SHIFT);
	else
		map_found(call, addr, len, args[3] & MAP_SHARED ? 0 : addr >> PAGE_SHIFT);
}

static void remap_file_pages(struct call *call)
{
	const unsigned long *args = call->step->args;

	if (succeeded(call))
		map_found(call, args[0] & PAGE_MASK, args[1] & PAGE_MASK, args[3]);
}

static void shmat(struct call *call)
{
	// The sizes of the segments in lab/conform/src/arena.rs, and SHM_REMAP.
	static const unsigned long sizes[] = { 6 * PAGE_SIZE, 2 * PAGE_SIZE };
	const unsigned long *args = call->step->args;
	const struct row *row = succeeded(call) ? row_at(call->after, call->step->result) : NULL;
	unsigned long addr = args[1] & PAGE_MASK, error = call->step->result;

	if (row)
		map_found(call, row->start, row->end - row->start, 0);
	else if (!succeeded(call) && args[2] & 040000 && args[0] < ARRAY_SIZE(sizes) &&
		 ((error == EPERM && has_sealed(call->mm, addr, addr + sizes[args[0]])) ||
		  (error == EINVAL && is_unsplittable(call, addr, addr + sizes[args[0]]))))
		map(call, file_of(-2ul - SEGMENT, SEGMENT), addr, sizes[args[0]], VM_READ | VM_WRITE | VM_SHARED, 0);
}

// Each piece of a segment is unmapped for itself.
static void shmdt(struct call *call)
{
	VMA_ITERATOR(vmi, call->mm, call->step->args[0]);
	struct vm_area_struct *vma;

	if (!succeeded(call))
		return;
	for_each_vma(vmi, vma)
		if (kind_of(vma) == SEGMENT && !is_mapped_after(call, vma->vm_start, vma->vm_end))
			do_vmi_align_munmap(&vmi, vma, call->mm, vma->vm_start, vma->vm_end, NULL, false);
}

static void munmap_call(struct call *call)
{
	returned(call, __vm_munmap(call->step->args[0], call->step->args[1], true));
}

// `after` has the new break, the process the old one.
static void brk_call(struct call *call)
{
	unsigned long new = PAGE_ALIGN(call->step->args[0]), old = PAGE_ALIGN(call->process->brk);
	LIST_HEAD(watched);
	struct vma_iterator vmi;
	struct vm_area_struct *vma, *next;
	vma_flags_t none = { { 0 } };
	const struct row *row;
	bool moved = succeeded(call) && call->step->result == call->step->args[0];

	if (new == old || call->step->args[0] < call->process->start_brk)
		return;
	// brk checks RLIMIT_DATA before; only a sealed heap is refused by mm/vma.c.
	if (call->step->args[0] <= call->process->brk) {
		if (!moved && !has_sealed(call->mm, new, old))
			return;
		vma_iter_init(&vmi, call->mm, new);
		vma = vma_find(&vmi, old);
		if (vma && vma->vm_start < old)
			do_vmi_align_munmap(&vmi, vma, call->mm, new, old, &watched, true);
		return;
	}
	if (new < old || new > TASK_SIZE)
		return;
	vma_iter_init(&vmi, call->mm, old);
	next = vma_find(&vmi, new + PAGE_SIZE + stack_guard_gap);
	if (next && new + PAGE_SIZE > vm_start_gap(next))
		return;
	row = row_at(call->after, old);
	// Before mm/vma.c, brk checks RLIMIT_DATA and the limit on locked memory.
	if (!moved && call->mm->map_count <= sysctl_max_map_count &&
	    call->mm->total_vm + ((new - old) >> PAGE_SHIFT) <= call->process->limits[9] >> PAGE_SHIFT)
		return;
	acting.ksm = row ? row->flags & VM_MERGEABLE : 0;
	acting.data = row ? row->flags & VM_EXEC : 0;
	vma = vma_prev_limit(&vmi, call->process->start_brk);
	call->compared = true;
	call->got = do_brk_flags(&vmi, vma, old, new - old, none);
	call->expected = moved ? 0 : -ENOMEM;
}

// A fault below a stack lets it grow.
static void touch(struct call *call)
{
	struct vm_area_struct *vma = find(call->mm, call->step->args[0]);

	if (vma && vma->vm_start > call->step->args[0] && vma->vm_flags & VM_GROWSDOWN)
		expand_downwards(vma, call->step->args[0]);
}

static void limit(struct call *call)
{
	if (succeeded(call) && call->step->args[1] < 16 && call->step->words)
		call->process->limits[call->step->args[1]] = call->step->data[0];
}

static void drop_rights(struct call *call)
{
	call->process->unprivileged |= succeeded(call);
}

static void prctl_call(struct call *call)
{
	if (succeeded(call) && call->step->args[0] == 65 && call->step->args[1] & 1) {
		call->process->write_xor_exec = true;
		call->mm->flags.__mm_flags[0] |= 1ul << MMF_HAS_MDWE;
	}
}

// Mappings that bring the process close to its limit: see lab/conform/src/fill.rs.
static void fill(struct call *call)
{
	const struct row *row = call->after->rows, *end = row + call->after->count;
	const struct row *last;

	while (row < end && is_mapped(call->mm, row->start, row->end))
		row++;
	if (row == end)
		return;
	for (last = row; last + 1 < end && last[1].start == last->end; last++)
		;
	map_found(call, row->start, last->end - row->start, row->start >> PAGE_SHIFT);
	while (++row < last) {
		VMA_ITERATOR(vmi, call->mm, row->start);
		vma_flags_t flags = { { row->flags } };
		struct vm_area_struct *vma = vma_find(&vmi, row->end);

		if (vma->vm_flags != row->flags) {
			vma = vma_modify_flags(&vmi, vma, vma, row->start, row->end, &flags);
			if (!IS_ERR(vma))
				set_flags(vma, row->flags);
		}
	}
}

static const struct {
	const char *name;
	void (*make)(struct call *call);
} calls[] = {
	{ "mmap", mmap_call },
	{ "munmap", munmap_call },
	{ "mremap", mremap_call },
	{ "brk", brk_call },
	{ "remap_file_pages", remap_file_pages },
	{ "shmat", shmat },
	{ "shmdt", shmdt },
	{ "mprotect", change },
	{ "pkey_mprotect", change },
	{ "madvise", change },
	{ "mbind", change },
	{ "mseal", change },
	{ "mlock", change },
	{ "mlock2", change },
	{ "munlock", change },
	{ "mlockall", change_all },
	{ "munlockall", change_all },
	{ "process_madvise", advise_ranges },
	{ "ioctl", watch },
	{ "touch", touch },
	{ "fill", fill },
	{ "prlimit64", limit },
	{ "capset", drop_rights },
	{ "prctl", prctl_call },
};

bool make(struct process *process, const struct step *step, const struct list *after, long *expected, long *got)
{
	struct call call = { .process = process, .mm = process->mm, .step = step, .after = after };
	size_t n;

	memset(&acting, 0, sizeof(acting));
	acting.process = process;
	count_pages(process->mm);
	for (n = 0; n < ARRAY_SIZE(calls); n++)
		if (!strcmp(calls[n].name, step->name))
			calls[n].make(&call);
	*expected = call.expected;
	*got = call.got;
	return !call.compared || call.expected == call.got;
}
