// mremap as mm/mremap.c makes it: empties the new place, copies the VMA, and removes the old one.
#include "calls.h"
#include <errno.h>

static void moved_piece(struct call *call, struct vm_area_struct *vma, unsigned long from, unsigned long old_len,
			unsigned long to, unsigned long len)
{
	bool keeps = call->step->args[3] & MREMAP_DONTUNMAP, locks;
	unsigned long pgoff = vma->vm_pgoff + ((from - vma->vm_start) >> PAGE_SHIFT);
	struct vm_area_struct *copy;
	const struct row *row = row_at(call->after, to);

	// The last argument, that the source is kept, is newer than Linux 6.18, whose calls these are.
	copy = copy_vma(&vma, to, len, pgoff, &locks, false);
	if (!copy)
		return;
	// What userfaultfd decides about the copy.
	if (row) {
		copy->vm_userfaultfd_ctx.id = row->uffd;
		set_flags(copy, row->flags);
	}
	if (!keeps) {
		unmap(call->mm, from, old_len);
		return;
	}
	row = row_at(call->after, from);
	if (copy == vma || !row || vma->vm_start != from || vma->vm_end != from + old_len)
		return;
	if (vma->anon_vma && !row->anon)
		unlink_anon_vmas(vma);
	if (!vma->anon_vma && kind_of(vma) == ANONYMOUS)
		vma->vm_pgoff = row->pgoff;
}

static bool was_moved(const struct call *call, unsigned long from, unsigned long to)
{
	const struct row *row = row_at(call->after, to);
	struct vm_area_struct *vma = find(call->mm, to);

	if (succeeded(call))
		return true;
	if (!(call->step->args[3] & MREMAP_DONTUNMAP))
		return !row_at(call->after, from) && row;
	// What is there now was not there before.
	return row && (!vma || vma->vm_start > to || (row->start == to && vma->vm_start < to) ||
		       (row->flags ^ vma->vm_flags) & ~STICKY ||
		       row->pgoff - PHYS_PFN(row->start) != vma->vm_pgoff - PHYS_PFN(vma->vm_start));
}

// A move has failed, perhaps after it has emptied the place, or because that is sealed.
static void empty_refused(struct call *call, unsigned long from, unsigned long old_len, unsigned long to,
			  unsigned long len)
{
	if ((call->step->result == EPERM && !has_sealed(call->mm, from, from + old_len) &&
	     has_sealed(call->mm, to, to + len)) ||
	    (call->step->result == EINVAL && is_unsplittable(call, to, to + len)))
		returned(call, unmap(call->mm, to, len));
	else if (is_mapped(call->mm, to, to + len) && !is_mapped_after(call, to, to + len))
		unmap(call->mm, to, len);
}

// A call that shrinks has failed, perhaps after it has removed the tail, or because that is sealed.
static void shrink_refused(struct call *call, unsigned long start, unsigned long end)
{
	const struct row *row = row_at(call->after, start);
	bool sealed = call->step->result == EPERM && has_sealed(call->mm, start, end) && row && row->start == start;

	if (is_mapped(call->mm, start, end) && (sealed || !is_mapped_after(call, start, end)))
		unmap(call->mm, start, end - start);
}

// Each VMA of the range is moved for itself, into a place that is emptied for it.
static void move_all(struct call *call, unsigned long addr, unsigned long len, unsigned long to)
{
	unsigned long at = addr;

	while (at < addr + len) {
		struct vm_area_struct *vma = find(call->mm, at);
		unsigned long end, target;

		if (!vma || vma->vm_start >= addr + len)
			return;
		at = max(at, vma->vm_start);
		end = min(addr + len, vma->vm_end);
		target = to + (at - addr);
		if (!was_moved(call, at, target)) {
			empty_refused(call, at, end - at, target, end - at);
			return;
		}
		unmap(call->mm, target, end - at);
		vma = find(call->mm, at);
		if (!vma || vma->vm_start > at)
			return;
		moved_piece(call, vma, at, end - at, target, end - at);
		at = end;
	}
}

void mremap_call(struct call *call)
{
	const unsigned long *args = call->step->args;
	unsigned long addr = args[0], old_len = PAGE_ALIGN(args[1]), new_len = PAGE_ALIGN(args[2]);
	unsigned long to = args[3] & MREMAP_FIXED ? args[4] : call->step->result;
	struct vm_area_struct *vma = find(call->mm, addr);

	if (!vma || vma->vm_start > addr || addr & ~PAGE_MASK)
		return;
	if (kind_of(vma) == HUGETLB) {
		old_len = (old_len + HUGE - 1) & ~(HUGE - 1);
		new_len = (new_len + HUGE - 1) & ~(HUGE - 1);
	}
	if (args[3] & MREMAP_FIXED && old_len == new_len) {
		if (to & ~PAGE_MASK || addr + old_len < addr || to + new_len > TASK_SIZE)
			return;
		move_all(call, addr, old_len, to);
		return;
	}
	if (!succeeded(call)) {
		if (args[3] & MREMAP_FIXED && !(to & ~PAGE_MASK) && new_len)
			empty_refused(call, addr, old_len, to, new_len);
		if (old_len > new_len && new_len)
			shrink_refused(call, addr + new_len, addr + old_len);
		return;
	}
	if (args[3] & MREMAP_FIXED) {
		unmap(call->mm, to, new_len);
		vma = find(call->mm, addr);
	} else if (to == addr && new_len > old_len) {
		VMA_ITERATOR(vmi, call->mm, vma->vm_end);

		call->compared = true;
		call->got = vma_merge_extend(&vmi, vma, new_len - old_len) ? 0 : -ENOMEM;
		return;
	}
	if (old_len > new_len) {
		unmap(call->mm, addr + new_len, old_len - new_len);
		vma = find(call->mm, addr);
		old_len = new_len;
	}
	if (to != addr)
		moved_piece(call, vma, addr, old_len, to, new_len);
}
