/* System calls without libc. They leave errno alone, because a child that shares its parent's memory also shares errno,
 * and they change only the calling thread, while libc's set*id change every thread.
 *
 * raw(number, up to six arguments) returns the kernel's answer: -errno for an error.
 */
#ifndef NODECTL_RAW_H
#define NODECTL_RAW_H

#include <sys/syscall.h>

#if defined(__x86_64__)

#define CAN_SHARE_MEMORY 1
static inline long raw_call(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

/* clone3(2) with a stack of the child's own, on which it calls `begin(argument)`, which never returns. */
static inline long raw_clone3(void *args, unsigned long size, void (*begin)(void *), void *argument)
{
    long result;
    register void (*r8)(void *) __asm__("r8") = begin;
    register void *r9 __asm__("r9") = argument;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %%r9, %%rdi\n\t"
                     "call *%%r8\n\t"
                     "hlt\n"
                     "1:"
                     : "=a"(result)
                     : "a"(SYS_clone3), "D"(args), "S"(size), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

#elif defined(__aarch64__)

#define CAN_SHARE_MEMORY 1
static inline long raw_call(long number, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}

static inline long raw_clone3(void *args, unsigned long size, void (*begin)(void *), void *argument)
{
    register long x8 __asm__("x8") = SYS_clone3;
    register long x0 __asm__("x0") = (long)args;
    register long x1 __asm__("x1") = (long)size;
    register void (*x10)(void *) __asm__("x10") = begin;
    register void *x11 __asm__("x11") = argument;
    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, xzr\n\t"
                     "mov x30, xzr\n\t"
                     "mov x0, x11\n\t"
                     "blr x10\n\t"
                     "brk #0\n"
                     "1:"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x10), "r"(x11)
                     : "memory");
    return x0;
}

#else /* on this machine no child shares its parent's memory, so libc's errno does no harm */

#include <errno.h>
#include <unistd.h>

#define CAN_SHARE_MEMORY 0
static inline long raw_call(long number, long a, long b, long c, long d, long e, long f)
{
    long result = syscall(number, a, b, c, d, e, f);
    return result == -1 ? -errno : result;
}

static inline long raw_clone3(void *args, unsigned long size, void (*begin)(void *), void *argument)
{
    (void)args, (void)size, (void)begin, (void)argument;
    return -ENOSYS;
}

#endif

#define raw_7(number, a, b, c, d, e, f, ...) \
    raw_call((long)(number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define raw(...) raw_7(__VA_ARGS__, 0, 0, 0, 0, 0, 0)

#endif
