// What mm/vma.c needs of a kernel, for ci/checks/branches: the declarations of Linux's own harness (tools/testing/vma),
// and functions of ours where that one answers always the same, so that policies, files with hooks, userfaultfd, chains
// of anon_vmas and limits take part in a decision. Nothing of the kernel's text is in this repository.
#pragma once
// mm/vma.c includes this header of the kernel's folder mm.
#define __MM_VMA_INTERNAL_H

#include <stdlib.h>

// As in Debian's configuration for amd64, as far as the decisions depend on it.
#define CONFIG_MMU
#define CONFIG_PER_VMA_LOCK
#define CONFIG_NUMA

#undef __CONCAT
#include "generated/bit-length.h"
#include "maple-shared.h"
#include <linux/args.h>
#include <linux/atomic.h>
#include <linux/bitmap.h>
#include <linux/list.h>
#include <linux/maple_tree.h>
#include <linux/mm.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/slab.h>

#define __private
typedef struct {
	unsigned long __mm_flags[1];
} mm_flags_t;
typedef struct {
	unsigned long __vma_flags[1];
} vma_flags_t;
typedef unsigned long vm_flags_t;
#define pgoff_t unsigned long
typedef unsigned long pgprotval_t;
typedef struct pgprot {
	pgprotval_t pgprot;
} pgprot_t;
typedef unsigned int vm_fault_t;

// The harness's versions of these have branches of their own.
#undef READ_ONCE
#undef WRITE_ONCE
#undef WARN_ON
#undef WARN_ON_ONCE
#undef BUG_ON
#define READ_ONCE(place) (*(const volatile typeof(place) *)&(place))
#define WRITE_ONCE(place, value) (*(volatile typeof(place) *)&(place) = (value))
extern unsigned long warnings;
#define WARN_ON(condition) (warnings += !!(condition))
#define WARN_ON_ONCE(condition) WARN_ON(condition)
#define BUG_ON(condition) WARN_ON(condition)

// A kernel without CONFIG_DEBUG_VM evaluates none of these.
#define VM_WARN_ON(condition) ((void)sizeof(condition))
#define VM_WARN_ON_ONCE(condition) ((void)sizeof(condition))
#define VM_WARN_ON_VMG(condition, vmg) ((void)sizeof(condition))
#define VM_BUG_ON(condition) ((void)sizeof(condition))
#define VM_BUG_ON_VMA(condition, vma) ((void)sizeof(condition))

// The harness's versions of what is defined below.
#define vm_userfaultfd_ctx harness_vm_userfaultfd_ctx
#define is_mergeable_vm_userfaultfd_ctx harness_is_mergeable_vm_userfaultfd_ctx
#define mpol_equal harness_mpol_equal
#define vma_close harness_vma_close
#define may_expand_vm harness_may_expand_vm
#define ksm_vma_flags harness_ksm_vma_flags
#define shmem_file harness_shmem_file
#define shmem_zero_setup harness_shmem_zero_setup
#define is_file_hugepages harness_is_file_hugepages
#define is_vm_hugetlb_page harness_is_vm_hugetlb_page
#define vma_supports_mlock harness_vma_supports_mlock
#define capable harness_capable
#define security_vm_enough_memory_mm harness_security_vm_enough_memory_mm
#define mmap_file harness_mmap_file
#include "include/stubs.h"
#undef vm_userfaultfd_ctx
#undef is_mergeable_vm_userfaultfd_ctx
#undef mpol_equal
#undef vma_close
#undef may_expand_vm
#undef ksm_vma_flags
#undef shmem_file
#undef shmem_zero_setup
#undef is_file_hugepages
#undef is_vm_hugetlb_page
#undef vma_supports_mlock
#undef capable
#undef security_vm_enough_memory_mm
#undef mmap_file
#undef vma_policy
#define vma_policy(vma) ((vma)->vm_policy)

struct vm_userfaultfd_ctx {
	unsigned long id;
};

// shim.c defines these.
bool mpol_equal(struct mempolicy *a, struct mempolicy *b);
void vma_close(struct vm_area_struct *vma);
bool may_expand_vm(struct mm_struct *mm, const vma_flags_t *flags, unsigned long pages);
vma_flags_t ksm_vma_flags(struct mm_struct *mm, const struct file *file, vma_flags_t flags);
bool shmem_file(struct file *file);
int shmem_zero_setup(struct vm_area_struct *vma);
bool is_file_hugepages(const struct file *file);
bool is_vm_hugetlb_page(struct vm_area_struct *vma);
bool vma_supports_mlock(const struct vm_area_struct *vma);
bool capable(int capability);
int security_vm_enough_memory_mm(struct mm_struct *mm, long pages);
int mmap_file(struct file *file, struct vm_area_struct *vma);
bool is_mergeable_vm_userfaultfd_ctx(struct vm_area_struct *vma, struct vm_userfaultfd_ctx context);

// As x86 has it, with VM_EXEC only under READ_IMPLIES_EXEC.
#define VMA_DATA_DEFAULT_FLAGS data_flags()
vma_flags_t data_flags(void);
#include "include/dup.h"

#define unlink_anon_vmas harness_unlink_anon_vmas
#define anon_vma_clone harness_anon_vma_clone
#define __anon_vma_prepare harness_anon_vma_prepare_new
#define anon_vma_prepare harness_anon_vma_prepare
#include "include/custom.h"
#undef unlink_anon_vmas
#undef anon_vma_clone
#undef __anon_vma_prepare
#undef anon_vma_prepare

void unlink_anon_vmas(struct vm_area_struct *vma);
int anon_vma_clone(struct vm_area_struct *dst, struct vm_area_struct *src, enum vma_operation operation);
int anon_vma_prepare(struct vm_area_struct *vma);
