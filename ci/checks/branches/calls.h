// The system calls of a step as the calls into mm/vma.c that the kernel makes for them.
#pragma once
#include "world.h"
#include "../../../mm/vma.h"

struct step {
	unsigned process;
	// v, e or s, and the value, errno or signal.
	char outcome;
	unsigned long result;
	char name[32];
	unsigned long args[6];
	unsigned long *data;
	size_t words;
};

// Makes a VMA of a row and puts it into the address space.
void insert_row(struct mm_struct *mm, const struct row *row);
const struct row *row_at(const struct list *list, unsigned long addr);
// Makes the step in the process, whose list is `after` then. Returns false if mm/vma.c answers otherwise than the
// kernel, and sets `expected` and `got` to the two results.
bool make(struct process *process, const struct step *step, const struct list *after, long *expected, long *got);

// For the calls in files of their own.

#define HUGE (2ul << 20)
#define MAP_SHARED 1
#define MAP_FIXED 0x10
#define MAP_ANONYMOUS 0x20
#define MAP_LOCKED 0x2000
#define MAP_NORESERVE 0x4000
#define MREMAP_FIXED 2
#define MREMAP_DONTUNMAP 4
#define PROT_GROWSDOWN 0x01000000
// Flags that no merge compares, or that mm/vma.c sets by itself.
#define STICKY (1ul << VMA_SOFTDIRTY_BIT | VM_MAYBE_GUARD)
#define OWN (STICKY | VM_ACCOUNT | VM_MERGEABLE)

struct call {
	struct process *process;
	struct mm_struct *mm;
	const struct step *step;
	const struct list *after;
	// Results of mm/vma.c and of the kernel, if they are to be compared.
	bool compared;
	long got, expected;
};

bool succeeded(const struct call *call);
// Notes what mm/vma.c returned, which must be what the kernel did.
void returned(struct call *call, long got);
struct vm_area_struct *find(struct mm_struct *mm, unsigned long addr);
bool is_mapped(struct mm_struct *mm, unsigned long start, unsigned long end);
bool is_mapped_after(const struct call *call, unsigned long start, unsigned long end);
bool has_sealed(struct mm_struct *mm, unsigned long start, unsigned long end);
bool is_unsplittable(const struct call *call, unsigned long start, unsigned long end);
long unmap(struct mm_struct *mm, unsigned long start, unsigned long len);
unsigned long set_flags(struct vm_area_struct *vma, unsigned long flags);
void mremap_call(struct call *call);
