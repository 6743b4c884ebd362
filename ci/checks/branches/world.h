// What ci/checks/branches knows about a process beside its list of VMAs, and the objects that VMAs point to.
#pragma once
#include "shim.h"

// Kinds of files, as lab/conform/src/states.rs numbers them.
enum kind { ANONYMOUS, REGULAR, SHMEM, SHARED_ANON, SEGMENT, HUGETLB, DEV_ZERO, SPECIAL, SECRET };

// A VMA, as the file of steps lists it.
struct row {
	unsigned long start, end, flags, pgoff, anon, singular, file, kind, policy, uffd;
};

struct list {
	struct row *rows;
	size_t count;
};

struct process {
	struct mm_struct *mm;
	struct list list;
	unsigned long start_brk, brk;
	// Soft limits in bytes by their numbers; RLIMIT_DATA is 2, RLIMIT_STACK 3, RLIMIT_MEMLOCK 8, RLIMIT_AS 9.
	unsigned long limits[16];
	bool unprivileged, write_xor_exec;
};

// The process that acts, and what a function outside of mm/vma.c decides for its call.
extern struct {
	struct process *process;
	// An error that the file's hook returns, and the file that the mapping gets instead of the one that is mapped.
	int hook_error;
	struct file *hook_file;
	// Flags that the settings of the process add, for KSM and for data (VM_EXEC).
	unsigned long ksm, data;
} acting;

// Forgets the objects of the last sequence.
void forget_objects(void);
// The object that the file of steps names by a number; 0 is none.
struct file *file_of(unsigned long id, enum kind kind);
unsigned long id_of_file(const struct file *file);
const struct vm_operations_struct *ops_of(enum kind kind, bool shared);
enum kind kind_of(const struct vm_area_struct *vma);
struct anon_vma *anon_of(unsigned long id);
unsigned long id_of_anon(const struct anon_vma *anon);
bool is_known_anon(unsigned long id);
// Names an anon_vma that the growth of a stack has made.
void name_anon(struct anon_vma *anon, unsigned long id);
bool is_unnamed_anon(const struct anon_vma *anon);
// Gives a VMA an anon_vma with a chain of one or two.
void set_anon(struct vm_area_struct *vma, struct anon_vma *anon, bool singular);
// Counts the pages of a process as mm/vma.c keeps them.
void count_pages(struct mm_struct *mm);
