# Firmware that does what a kernel does on its way up, and says that it came through. It is 64 KiB at the end of the first
# 4 GiB, and enters here from the reset vector.
#
#   real mode -> protected mode -> long mode with paging, its tables in memory
#   -> descriptor tables and a task -> CPUID, the MSRs that every kernel writes, SSE
#   -> the local APIC's timer, whose interrupts are taken and acknowledged all the while
#   -> 8 MiB in pages of 4 KiB, written and read back, until enough was done and enough time has passed
#   -> sleep until the next interrupts -> the sign, on the port that ends QEMU
#
# An exception writes its number to that port instead; memory that does not read as it was written, 0x29.
#
# Memory: 0x6000 ticks, 0x7000 stack (downwards), 0x8000 GDT, 0x9000 IDT, 0xa000 task, 0x10000 page tables, 16 MiB work.

    .section .rodata.orlop_probe, "a"
    .p2align 4
    .globl orlop_probe_begin
    .globl orlop_probe_end
    .set ROM, 0xffff0000
    .set PORT, 0xf4
    .set SIGN, 0x2a
    .set FORGETS, 0x29
    .set TICKS, 0x6000
    .set STACK, 0x8000
    .set GDT, 0x8000
    .set IDT, 0x9000
    .set TABLES, 0x10000
    .set SMALL, 0x20000
    .set WORK, 0x1000000
    .set WORDS, 0x100000
    .set APIC, 0xfee00000
    .set VECTOR, 0x40
    .set MILLISECONDS, 250
    .set PASSES, 8

# Where a label is when the firmware is in its place; the other syntax has no such sums.
    .macro address register, label
    .att_syntax
    movl $(ROM + \label - orlop_probe_begin), %\register
    .intel_syntax noprefix
    .endm

orlop_probe_begin:
    .code16
    cli
    cld
    # lgdt cs:[gdt_in_rom], with all 32 bits of its base
    .byte 0x66, 0x2e, 0x0f, 0x01, 0x16
    .short gdt_in_rom - orlop_probe_begin
    mov eax, cr0
    or al, 1
    mov cr0, eax
    # jmp 0x08:protected
    .byte 0x66, 0xea
    .long ROM + (protected - orlop_probe_begin)
    .short 0x08

    .code32
protected:
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    mov esp, STACK
    # The tables begin empty: one of level 4, one of level 3, four of level 2 and four of level 1.
    xor eax, eax
    mov edi, TABLES
    mov ecx, 0x14000 / 4
    rep stosd
    mov dword ptr [TABLES], TABLES + 0x1003
    mov dword ptr [TABLES + 0x1000], TABLES + 0x2003
    mov dword ptr [TABLES + 0x1008], TABLES + 0x3003
    mov dword ptr [TABLES + 0x1010], TABLES + 0x4003
    mov dword ptr [TABLES + 0x1018], TABLES + 0x5003
    # 4 GiB one to one, in pages of 2 MiB ...
    mov edi, TABLES + 0x2000
    mov eax, 0x83
2:
    mov [edi], eax
    add edi, 8
    add eax, 0x200000
    jnc 2b
    # ... but for what is worked on: that has pages of 4 KiB.
    mov edi, SMALL
    mov eax, WORK + 3
    mov ecx, 2048
3:
    mov [edi], eax
    add edi, 8
    add eax, 0x1000
    loop 3b
    mov dword ptr [TABLES + 0x2000 + 8 * 8], SMALL + 3
    mov dword ptr [TABLES + 0x2000 + 9 * 8], SMALL + 0x1003
    mov dword ptr [TABLES + 0x2000 + 10 * 8], SMALL + 0x2003
    mov dword ptr [TABLES + 0x2000 + 11 * 8], SMALL + 0x3003
    # PAE, global pages, SSE and its exceptions
    mov eax, cr4
    or eax, 0x6a0
    mov cr4, eax
    mov eax, TABLES
    mov cr3, eax
    # EFER: system calls, long mode
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x101
    wrmsr
    # paging, write protection, the FPU's errors; no emulation of it
    mov eax, cr0
    and eax, ~4
    or eax, 0x80010022
    mov cr0, eax
    # jmp 0x18:long
    .byte 0xea
    .long ROM + (long - orlop_probe_begin)
    .short 0x18

    .code64
long:
    xor eax, eax
    mov fs, eax
    mov gs, eax
    mov [TICKS], eax
    mov esp, STACK - 0x1000
    # A GDT in memory: the processor writes to it when the task is loaded.
    address esi, gdt
    mov edi, GDT
    mov ecx, 48
    rep movsb
    address ebx, gdt_in_memory
    lgdt [rbx]
    push 0x18
    address eax, reloaded
    push rax
    # retf, with 64 bits
    .byte 0x48, 0xcb
reloaded:
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    mov edi, 0xa000
    xor eax, eax
    mov ecx, 0x68 / 4
    rep stosd
    mov eax, 0x20
    ltr ax
    # The first 32 gates lead to a stub each, the others back to where they came from, but for the timer's.
    mov edi, IDT
    address eax, stubs
    mov ecx, 32
4:
    call gate
    add eax, 8
    loop 4b
    address eax, ignore
    mov ecx, 224
5:
    call gate
    loop 5b
    mov edi, IDT + VECTOR * 16
    address eax, tick
    call gate
    address ebx, idt_pointer
    lidt [rbx]
    # Every leaf of CPUID, plain and extended.
    xor eax, eax
    call leaves
    mov eax, 0x80000000
    call leaves
    fninit
    # The registers of system calls and of threads.
    address esi, msrs
6:
    mov ecx, [rsi]
    test ecx, ecx
    jz 7f
    mov eax, [rsi + 4]
    xor edx, edx
    wrmsr
    add esi, 8
    jmp 6b
7:
    # Page attributes and the APIC's base are read and written back.
    mov ecx, 0x277
    rdmsr
    wrmsr
    mov ecx, 0x1b
    rdmsr
    or eax, 0x800
    wrmsr
    # The old interrupt controllers are silent; the local one counts milliseconds: 1 GHz, by 16, by 62,500.
    mov al, 0xff
    out 0x21, al
    out 0xa1, al
    mov ebx, APIC
    mov dword ptr [rbx + 0x80], 0
    mov dword ptr [rbx + 0xf0], 0x1ff
    mov dword ptr [rbx + 0x3e0], 3
    mov dword ptr [rbx + 0x320], 0x20000 + VECTOR
    mov dword ptr [rbx + 0x380], 62500
    sti
    # Write and read back, until both are enough.
    xor ebp, ebp
    mov r8, 0x9e3779b97f4a7c15
    movq xmm1, r8
8:
    inc ebp
    mov edi, WORK
    mov ecx, WORDS
    mov rax, rbp
    imul rax, r8
    mov rdx, rax
9:
    mov [rdi], rax
    add rax, r8
    add edi, 8
    loop 9b
    mov edi, WORK
    mov ecx, WORDS
10:
    movq xmm0, rdx
    movq rax, xmm0
    cmp [rdi], rax
    jne forgets
    paddq xmm0, xmm1
    movq rdx, xmm0
    add edi, 8
    loop 10b
    cmp ebp, PASSES
    jb 8b
    cmp dword ptr [TICKS], MILLISECONDS
    jb 8b
    # Sleep, and be woken.
    mov eax, [TICKS]
    add eax, 3
11:
    hlt
    cmp [TICKS], eax
    jb 11b
    cli
    mov dword ptr [rbx + 0x320], 0x10000
    mov al, SIGN
    jmp end

forgets:
    mov al, FORGETS
    jmp end

# The gate at edi leads to eax; edi moves on.
gate:
    mov edx, eax
    mov word ptr [rdi], dx
    shr edx, 16
    mov word ptr [rdi + 2], 0x18
    mov word ptr [rdi + 4], 0x8e00
    mov word ptr [rdi + 6], dx
    mov qword ptr [rdi + 8], 0
    add edi, 16
    ret

# Asks for all leaves from eax to the last that this one names.
leaves:
    mov esi, eax
    xor ecx, ecx
    cpuid
    mov edi, eax
12:
    mov eax, esi
    xor ecx, ecx
    cpuid
    inc esi
    cmp esi, edi
    jbe 12b
    ret

tick:
    push rax
    inc dword ptr [TICKS]
    mov eax, APIC
    mov dword ptr [rax + 0xb0], 0
    pop rax
ignore:
    iretq

    .p2align 3
stubs:
    .set number, 0
    .rept 32
    .p2align 3
    mov al, number
    jmp end
    .set number, number + 1
    .endr

    .p2align 3
end:
    out PORT, al
13:
    cli
    hlt
    jmp 13b

    .p2align 3
# Nothing, code and data of 32 bits, code of 64 bits, a task at 0xa000. All are marked as used.
gdt:
    .quad 0
    .quad 0x00cf9b000000ffff
    .quad 0x00cf93000000ffff
    .quad 0x00af9b000000ffff
    .quad 0x00008900a0000067
    .quad 0
gdt_end:
gdt_in_rom:
    .short gdt_end - gdt - 1
    .long ROM + (gdt - orlop_probe_begin)
gdt_in_memory:
    .short gdt_end - gdt - 1
    .quad GDT
idt_pointer:
    .short 0xfff
    .quad IDT
# SYSENTER's, SYSCALL's, the bases of FS and GS. None is ever used here.
    .p2align 2
msrs:
    .long 0x174, 0
    .long 0x175, STACK
    .long 0x176, ROM
    .long 0xc0000081, 0
    .long 0xc0000082, ROM
    .long 0xc0000084, 0x47700
    .long 0xc0000100, 0x6000
    .long 0xc0000101, 0x6000
    .long 0xc0000102, 0x6000
    .long 0
orlop_probe_end:
