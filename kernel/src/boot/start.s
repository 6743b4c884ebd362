/* The PVH entry point in 32-bit mode, the switch to 64-bit mode for every CPU, and the first page tables.
   The direct map of the first 4 GiB of memory is at entry 256 of the top table. */

.section .note.Xen, "a", @note
.align 4
.long 4, 4, 18                  /* XEN_ELFNOTE_PHYS32_ENTRY */
.asciz "Xen"
.long pvh_start

.section .boot.text, "ax"
.code32
.global pvh_start
pvh_start:
    cli
    mov esp, offset boot_stack_top
    mov edi, ebx                /* the boot information */
    mov eax, offset boot_pdpt
    or eax, 3
    mov [boot_pml4], eax
    mov [boot_pml4 + 256*8], eax
    mov eax, offset boot_pdpt_high
    or eax, 3
    mov [boot_pml4 + 511*8], eax
    mov dword ptr [boot_pdpt], 0x83
    mov dword ptr [boot_pdpt + 8], 0x40000083
    mov dword ptr [boot_pdpt + 16], 0x80000083
    mov dword ptr [boot_pdpt + 24], 0xc0000083
    mov dword ptr [boot_pdpt_high + 510*8], 0x83
enter_long:
    mov eax, cr4
    or eax, 0x620               /* PAE, OSFXSR, OSXMMEXCPT */
    mov cr4, eax
    mov eax, offset boot_pml4
    mov cr3, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x901               /* LME, NXE, SCE */
    wrmsr
    mov eax, cr0
    and eax, 0xfffffffb         /* no EM */
    or eax, 0x80010003          /* PG, WP, MP, PE */
    mov cr0, eax
    lgdt [boot_gdtr]
    ljmp 0x08, offset long_start
.code64
long_start:
    mov ax, 0x10
    mov ds, ax
    mov es, ax
    mov ss, ax
    xor eax, eax
    mov fs, ax
    mov gs, ax
    mov rsp, [ap_stack]
    test rsp, rsp
    jnz 1f
    lea rsp, [boot_stack_top]
    mov rax, 0xffff800000000000
    add rsp, rax
    mov edi, edi
    movabs rax, offset kernel_main
    call rax
    ud2
1:  movabs rax, offset ap_main
    call rax
    ud2

/* Copied to 0x8000, where the other CPUs start in 16-bit mode. */
.code16
.global ap_trampoline
ap_trampoline:
    cli
    xor ax, ax
    mov ds, ax
    .byte 0x66, 0x0f, 0x01, 0x16        /* lgdt with a 32-bit base */
    .word ap_gdtr - ap_trampoline + 0x8000
    mov eax, cr0
    or al, 1
    mov cr0, eax
    .byte 0x66, 0xea                    /* far jump with a 32-bit target */
    .long ap32 - ap_trampoline + 0x8000
    .word 0x18
.code32
ap32:
    mov ax, 0x10
    mov ds, ax
    mov es, ax
    mov ss, ax
    mov eax, offset enter_long
    jmp eax
ap_gdtr:
    .word 4*8-1
    .long boot_gdt
.global ap_trampoline_end
ap_trampoline_end:

.code64
.section .boot.data, "aw"
.align 8
boot_gdt:
    .quad 0, 0x00af9a000000ffff, 0x00cf92000000ffff, 0x00cf9a000000ffff
boot_gdtr:
    .word 4*8-1
    .long boot_gdt
    .long 0
/* Top of the stack of the CPU that starts next; 0 while the first one boots. */
.global ap_stack
.align 8
ap_stack: .quad 0

.section .boot.bss, "aw", @nobits
.align 4096
.global boot_pml4
boot_pml4: .skip 4096
boot_pdpt: .skip 4096
boot_pdpt_high: .skip 4096
.skip 65536
boot_stack_top:

.text
