// The functions that mm/vma.c calls and Linux's harness does not model: policies, files with hooks, userfaultfd, limits,
// and anon_vmas with the length of their chains.
#include "world.h"
#include <errno.h>
#include <unistd.h>

#define PAGES(bytes) ((bytes) >> PAGE_SHIFT)

struct named_file {
	struct file file;
	struct address_space mapping;
	unsigned long id;
	enum kind kind;
	struct named_file *older;
};

struct named_anon {
	struct anon_vma anon;
	unsigned long id;
	struct named_anon *older;
};

static struct named_file *files;
static struct named_anon *anons;

unsigned long mmap_min_addr = 65536;
unsigned long stack_guard_gap = 256ul << PAGE_SHIFT;
int sysctl_max_map_count;
unsigned long warnings;
const struct vm_operations_struct vma_dummy_vm_ops;
static struct task_struct task;
typeof(acting) acting;

struct task_struct *get_current(void)
{
	task.mm = acting.process->mm;
	return &task;
}

unsigned long rlimit(unsigned int limit)
{
	return acting.process->limits[limit];
}

bool capable(int capability)
{
	return !acting.process->unprivileged;
}

void count_pages(struct mm_struct *mm)
{
	VMA_ITERATOR(vmi, mm, 0);
	struct vm_area_struct *vma;

	mm->total_vm = mm->locked_vm = mm->data_vm = mm->exec_vm = mm->stack_vm = 0;
	for_each_vma(vmi, vma) {
		vm_stat_account(mm, vma->vm_flags, vma_pages(vma));
		if (vma->vm_flags & VM_LOCKED)
			mm->locked_vm += vma_pages(vma);
	}
}

bool may_expand_vm(struct mm_struct *mm, const vma_flags_t *flags, unsigned long pages)
{
	unsigned long bits = flags->__vma_flags[0];
	bool data = (bits & (VM_WRITE | VM_SHARED | VM_STACK)) == VM_WRITE;

	if (mm->total_vm + pages > PAGES(rlimit(9)))
		return false;
	// A soft limit of 0 counts as the hard limit, which no sequence lowers.
	return !data || !rlimit(2) || mm->data_vm + pages <= PAGES(rlimit(2));
}

void vma_set_range(struct vm_area_struct *vma, unsigned long start, unsigned long end, pgoff_t pgoff)
{
	vma->vm_start = start;
	vma->vm_end = end;
	vma->vm_pgoff = pgoff;
}

// Under vm.overcommit_memory=0 only what is larger than all memory is refused; no sequence comes near that.
int security_vm_enough_memory_mm(struct mm_struct *mm, long pages)
{
	return pages > sysconf(_SC_PHYS_PAGES) ? -ENOMEM : 0;
}

// Policies and contexts are numbers.
bool mpol_equal(struct mempolicy *a, struct mempolicy *b)
{
	return a == b;
}

bool is_mergeable_vm_userfaultfd_ctx(struct vm_area_struct *vma, struct vm_userfaultfd_ctx context)
{
	return vma->vm_userfaultfd_ctx.id == context.id;
}

vma_flags_t ksm_vma_flags(struct mm_struct *mm, const struct file *file, vma_flags_t flags)
{
	flags.__vma_flags[0] |= acting.ksm;
	return flags;
}

vma_flags_t data_flags(void)
{
	return (vma_flags_t){ { VM_READ | VM_WRITE | VM_MAYREAD | VM_MAYWRITE | VM_MAYEXEC | acting.data } };
}

// Files and their hooks.

static void no_hook(struct vm_area_struct *vma)
{
}

static int never_split(struct vm_area_struct *vma, unsigned long addr)
{
	return -EINVAL;
}

static int split_between_huge_pages(struct vm_area_struct *vma, unsigned long addr)
{
	return addr & ((2ul << 20) - 1) ? -EINVAL : 0;
}

static const struct vm_operations_struct file_ops;
static const struct vm_operations_struct segment_ops = { .open = no_hook, .close = no_hook };
static const struct vm_operations_struct special_ops = { .close = no_hook, .may_split = never_split };
static const struct vm_operations_struct hugetlb_ops = {
	.open = no_hook,
	.close = no_hook,
	.may_split = split_between_huge_pages,
};

const struct vm_operations_struct *ops_of(enum kind kind, bool shared)
{
	switch (kind) {
	case ANONYMOUS:
		return NULL;
	case DEV_ZERO:
		return shared ? &file_ops : NULL;
	case SEGMENT:
		return &segment_ops;
	case HUGETLB:
		return &hugetlb_ops;
	case SPECIAL:
		return &special_ops;
	default:
		return &file_ops;
	}
}

enum kind kind_of(const struct vm_area_struct *vma)
{
	if (vma->vm_file)
		return ((const struct named_file *)vma->vm_file)->kind;
	return vma->vm_ops == &special_ops ? SPECIAL : ANONYMOUS;
}

void vma_close(struct vm_area_struct *vma)
{
	if (vma->vm_ops && vma->vm_ops->close) {
		vma->vm_ops->close(vma);
		vma->vm_ops = &vma_dummy_vm_ops;
	}
}

static int map_file(struct vm_area_desc *desc)
{
	const struct named_file *file = (const struct named_file *)desc->file;
	bool shared = desc->vma_flags.__vma_flags[0] & VM_SHARED;

	if (acting.hook_error)
		return -acting.hook_error;
	if (acting.hook_file)
		desc->vm_file = acting.hook_file;
	desc->vm_ops = ops_of(file->kind, shared);
	return 0;
}

// The older hook, which overlayfs and devices have: it comes when the VMA exists, and no merge follows.
static int map_file_late(struct file *file, struct vm_area_struct *vma)
{
	if (acting.hook_error)
		return -acting.hook_error;
	vma->vm_ops = ops_of(((struct named_file *)file)->kind, vma->vm_flags & VM_SHARED);
	return 0;
}

int mmap_file(struct file *file, struct vm_area_struct *vma)
{
	return file->f_op->mmap(file, vma);
}

static const struct file_operations early_operations = { .mmap_prepare = map_file };
static const struct file_operations late_operations = { .mmap = map_file_late };

struct file *file_of(unsigned long id, enum kind kind)
{
	struct named_file *file;

	if (!id)
		return NULL;
	for (file = files; file; file = file->older)
		if (file->id == id)
			return &file->file;
	file = calloc(1, sizeof(*file));
	file->file.f_mapping = &file->mapping;
	file->file.f_op = kind == REGULAR ? &late_operations : &early_operations;
	file->id = id;
	file->kind = kind;
	file->older = files;
	files = file;
	return &file->file;
}

unsigned long id_of_file(const struct file *file)
{
	return file ? ((const struct named_file *)file)->id : 0;
}

bool shmem_file(struct file *file)
{
	enum kind kind = ((struct named_file *)file)->kind;

	return kind == SHMEM || kind == SHARED_ANON || kind == SEGMENT;
}

bool is_file_hugepages(const struct file *file)
{
	return ((const struct named_file *)file)->kind == HUGETLB;
}

bool is_vm_hugetlb_page(struct vm_area_struct *vma)
{
	return vma->vm_flags & VM_HUGETLB;
}

bool vma_supports_mlock(const struct vm_area_struct *vma)
{
	return !(vma->vm_flags & (VM_SPECIAL | VM_HUGETLB | VM_DROPPABLE));
}

int shmem_zero_setup(struct vm_area_struct *vma)
{
	if (acting.hook_error)
		return -acting.hook_error;
	vma->vm_file = acting.hook_file;
	vma->vm_ops = &file_ops;
	return 0;
}

// anon_vmas. Only the identity of an anon_vma and the length of a chain, one or more, take part in a decision.

struct anon_vma *anon_of(unsigned long id)
{
	struct named_anon *anon;

	for (anon = anons; anon; anon = anon->older)
		if (anon->id == id)
			return &anon->anon;
	anon = calloc(1, sizeof(*anon));
	anon->anon.root = &anon->anon;
	anon->id = id;
	anon->older = anons;
	anons = anon;
	return &anon->anon;
}

unsigned long id_of_anon(const struct anon_vma *anon)
{
	return anon ? ((const struct named_anon *)anon)->id : 0;
}

bool is_known_anon(unsigned long id)
{
	struct named_anon *anon;

	for (anon = anons; anon; anon = anon->older)
		if (anon->id == id)
			return true;
	return false;
}

static void link_anon(struct vm_area_struct *vma, struct anon_vma *anon)
{
	struct anon_vma_chain *link = calloc(1, sizeof(*link));

	link->anon_vma = anon;
	list_add(&link->same_vma, &vma->anon_vma_chain);
}

void set_anon(struct vm_area_struct *vma, struct anon_vma *anon, bool singular)
{
	vma->anon_vma = anon;
	link_anon(vma, anon);
	if (!singular)
		link_anon(vma, anon);
}

int anon_vma_clone(struct vm_area_struct *dst, struct vm_area_struct *src, enum vma_operation operation)
{
	struct anon_vma_chain *link;

	list_for_each_entry(link, &src->anon_vma_chain, same_vma)
		link_anon(dst, link->anon_vma);
	return 0;
}

void unlink_anon_vmas(struct vm_area_struct *vma)
{
	struct anon_vma_chain *link, *next;

	list_for_each_entry_safe(link, next, &vma->anon_vma_chain, same_vma) {
		list_del(&link->same_vma);
		free(link);
	}
	vma->anon_vma = NULL;
}

// The least id of an anon_vma whose name the file of steps tells later.
static const unsigned long unnamed = 1ul << 63;

bool is_unnamed_anon(const struct anon_vma *anon)
{
	return id_of_anon(anon) >= unnamed;
}

void name_anon(struct anon_vma *anon, unsigned long id)
{
	((struct named_anon *)anon)->id = id;
}

// Only the growth of a stack calls this: calls.c gives the other VMAs their anon_vmas.
int anon_vma_prepare(struct vm_area_struct *vma)
{
	static unsigned long last = unnamed;
	struct anon_vma *anon;

	if (vma->anon_vma)
		return 0;
	anon = find_mergeable_anon_vma(vma);
	set_anon(vma, anon ? anon : anon_of(last++), true);
	return 0;
}

void forget_objects(void)
{
	while (files) {
		struct named_file *file = files;

		files = file->older;
		free(file);
	}
	while (anons) {
		struct named_anon *anon = anons;

		anons = anon->older;
		free(anon);
	}
}
