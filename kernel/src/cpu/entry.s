/* Traps, system calls, the flush interrupt and the switch between threads.
   The register frame is `Registers` in registers.rs. */
.text
.code64

/* One stub of 16 bytes for each vector; a stub pushes a zero if the processor pushes no error code. */
.macro TRAP_STUB n
    .align 16
    .if !(\n == 8 || (\n >= 10 && \n <= 14) || \n == 17 || \n == 21)
    push 0
    .endif
    push \n
    jmp trap_entry
.endm
.align 16
.global trap_stubs
trap_stubs:
.altmacro
.set vector, 0
.rept 48
    TRAP_STUB %vector
    .set vector, vector+1
.endr
.noaltmacro

.macro SAVE_REGISTERS
    push r15
    push r14
    push r13
    push r12
    push r11
    push r10
    push r9
    push r8
    push rbp
    push rdi
    push rsi
    push rdx
    push rcx
    push rbx
    push rax
.endm

trap_entry:
    cld
    test byte ptr [rsp + 24], 3
    jz 1f
    swapgs
1:  SAVE_REGISTERS
    mov rdi, rsp
    call trap
return_from_trap:
    test byte ptr [rsp + 15*8 + 24], 3
    jz 1f
    swapgs
1:  pop rax
    pop rbx
    pop rcx
    pop rdx
    pop rsi
    pop rdi
    pop rbp
    pop r8
    pop r9
    pop r10
    pop r11
    pop r12
    pop r13
    pop r14
    pop r15
    add rsp, 16
    iretq

/* The number of the system call is saved in place of a trap's error code, so that the call can be repeated. */
.global system_call_entry
system_call_entry:
    swapgs
    mov gs:[8], rsp
    mov rsp, gs:[16]
    push 0x1b
    push gs:[8]
    push r11
    push 0x23
    push rcx
    push rax
    push 0x80
    SAVE_REGISTERS
    mov rdi, rsp
    call system_call
    jmp return_from_trap

/* The NMI flushes the TLB. It may arrive anywhere, runs on its own stack, and changes no other state. */
.global flush_entry
flush_entry:
    push rax
    mov rax, cr3
    mov cr3, rax
    lock dec qword ptr [FLUSHES_PENDING]
    pop rax
    iretq

/* switch_stacks(save: *mut u64, to: u64) */
.global switch_stacks
switch_stacks:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov [rdi], rsp
    mov rsp, rsi
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret

/* A new thread's first switch returns here, with its register frame on the stack. */
.global thread_start
thread_start:
    call finish_switch
    mov rdi, rsp
    call leave_kernel
    jmp return_from_trap
