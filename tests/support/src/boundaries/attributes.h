// Cases in which neighbours differ in permissions, flags or files.
static void gap(void) {
    used = (2 * n + 1) * PAGE;
    for (long i = 0; i <= n; i++) map(at + 2 * i * PAGE, PAGE, RW, ANON, -1, 0);
}
static void protection_read(void) { protected(PROT_READ); }
static void protection_exec(void) { protected(PROT_READ | PROT_EXEC); }
static void protection_uncharged(void) {
    plain(PROT_READ);
    for (long i = 1; i <= n; i += 2) must(mprotect(at + i * PAGE, PAGE, RW) == 0, "mprotect");
}
// too large for guards
static void protection_reserve(void) {
    char *p = at;
    for (long i = 0; i <= n; i++) {
        unsigned long len = i % 2 ? 3 * PAGE : PAGE;
        map(p, len, i % 2 ? PROT_NONE : RW, ANON, -1, 0);
        p += len;
    }
    used = p - at;
}
static void protection_shared(void) {
    used = (n + 1) * PAGE;
    int fd = memfd_create("shared", 0);
    must(fd >= 0 && ftruncate(fd, used) == 0, "memfd");
    map(at, used, RW, MAP_SHARED, fd, 0);
    for (long i = 1; i <= n; i += 2) must(mprotect(at + i * PAGE, PAGE, PROT_READ) == 0, "mprotect");
}
static void guards(int reserved) {
    char *p = at;
    used = 0;
    for (long i = 0; i <= n; i++) used += i % 2 ? PAGE : 8 * PAGE;
    map(at, used, reserved ? PROT_NONE : RW, ANON, -1, 0);
    for (long i = 0; i <= n; i++) {
        unsigned long len = i % 2 ? PAGE : 8 * PAGE;
        if (i % 2 && !reserved) must(mprotect(p, len, PROT_NONE) == 0, "mprotect");
        if (i % 2 == 0 && reserved) must(mprotect(p, len, RW) == 0, "mprotect");
        if (i % 2 == 0) touch(p);
        p += len;
    }
}
static void guard_protected(void) { guards(0); }
// the ranges between the guards are written after the guards were created, so their anon_vmas differ; they
// are not charged, because a range without pages loses its charge with its permissions
static void guard_touched_apart(void) {
    char *p = at;
    for (long i = 0; i <= n; i++) used += i % 2 ? PAGE : 8 * PAGE;
    map(at, used, RW, ANON | MAP_NORESERVE, -1, 0);
    for (long i = 0; i <= n; i++) {
        if (i % 2) must(mprotect(p, PAGE, PROT_NONE) == 0, "mprotect");
        p += i % 2 ? PAGE : 8 * PAGE;
    }
    for (p = at; p < at + used; p += 9 * PAGE) touch(p);
}
static void guard_reserved(void) { guards(1); }
static void flags_dontfork(void) { advised(MADV_DONTFORK, "MADV_DONTFORK"); }
static void flags_dontdump(void) { advised(MADV_DONTDUMP, "MADV_DONTDUMP"); }
static void flags_hugepage(void) { advised(MADV_HUGEPAGE, "MADV_HUGEPAGE"); }
static void flags_nohugepage(void) { advised(MADV_NOHUGEPAGE, "MADV_NOHUGEPAGE"); }
static void flags_mergeable(void) { advised(MADV_MERGEABLE, "MADV_MERGEABLE"); }
static void flags_wipeonfork(void) { advised(MADV_WIPEONFORK, "MADV_WIPEONFORK"); }
static void flags_random(void) { advised(MADV_RANDOM, "MADV_RANDOM"); }
static void flags_sequential(void) { advised(MADV_SEQUENTIAL, "MADV_SEQUENTIAL"); }
static void flags_locked(void) {
    plain(RW);
    for (long i = 1; i <= n; i += 2)
        if (mlock(at + i * PAGE, PAGE)) skip("mlock");
}
static void flags_noreserve(void) {
    used = (n + 1) * PAGE;
    for (long i = 0; i <= n; i++)
        map(at + i * PAGE, PAGE, RW, ANON | (i % 2 ? MAP_NORESERVE : 0), -1, 0);
}
static void flags_sealed(void) {
    plain(RW);
    for (long i = 1; i <= n; i += 2)
        if (syscall(462, at + i * PAGE, PAGE, 0)) skip("mseal");
}
// committed, used and decommitted: still charged
static void flags_decommitted(void) {
    plain(PROT_NONE);
    for (long i = 1; i <= n; i += 2) {
        must(mprotect(at + i * PAGE, PAGE, RW) == 0, "mprotect");
        touch(at + i * PAGE);
        must(madvise(at + i * PAGE, PAGE, MADV_DONTNEED) == 0, "madvise");
        must(mprotect(at + i * PAGE, PAGE, PROT_NONE) == 0, "mprotect");
    }
}
static void flags_file_once_writable(void) {
    used = (n + 1) * PAGE;
    map(at, used, PROT_READ, MAP_PRIVATE, file("once", 0, used), 0);
    for (long i = 1; i <= n; i += 2) {
        must(mprotect(at + i * PAGE, PAGE, RW) == 0, "mprotect");
        must(mprotect(at + i * PAGE, PAGE, PROT_READ) == 0, "mprotect");
    }
}
static void flags_file_random(void) {
    used = (n + 1) * PAGE;
    map(at, used, PROT_READ, MAP_SHARED, file("random", 0, used), 0);
    for (long i = 1; i <= n; i += 2)
        must(madvise(at + i * PAGE, PAGE, MADV_RANDOM) == 0, "madvise");
}
static void flags_shared_private(void) {
    used = (n + 1) * PAGE;
    int fd = file("both", 0, used);
    for (long i = 0; i <= n; i++)
        map(at + i * PAGE, PAGE, PROT_READ, i % 2 ? MAP_SHARED : MAP_PRIVATE, fd, i * PAGE);
}
static void flags_userfaultfd(void) {
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    if (fd < 0) skip("userfaultfd");
    struct uffdio_api api = {.api = UFFD_API};
    must(ioctl(fd, UFFDIO_API, &api) == 0, "UFFDIO_API");
    plain(RW);
    for (long i = 1; i <= n; i += 2) {
        struct uffdio_register reg = {{(uintptr_t)at + i * PAGE, PAGE}, UFFDIO_REGISTER_MODE_MISSING, 0};
        must(ioctl(fd, UFFDIO_REGISTER, &reg) == 0, "UFFDIO_REGISTER");
    }
}
// each page has a different context and the same flags
static void userfaultfd_contexts(void) {
    plain(RW);
    for (long i = 0; i <= n; i++) {
        int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
        if (fd < 0) skip("userfaultfd");
        struct uffdio_api api = {.api = UFFD_API};
        must(ioctl(fd, UFFDIO_API, &api) == 0, "UFFDIO_API");
        struct uffdio_register reg = {{(uintptr_t)at + i * PAGE, PAGE}, UFFDIO_REGISTER_MODE_MISSING, 0};
        must(ioctl(fd, UFFDIO_REGISTER, &reg) == 0, "UFFDIO_REGISTER");
    }
}
static void file_different(void) {
    used = (n + 1) * PAGE;
    for (long i = 0; i <= n; i++)
        map(at + i * PAGE, PAGE, PROT_READ, MAP_PRIVATE, file("f", i, PAGE), 0);
}
static void file_opened_twice(int sharing) {
    used = (n + 1) * PAGE;
    for (long i = 0; i <= n; i++)
        map(at + i * PAGE, PAGE, PROT_READ, sharing, file("twice", 0, used), i * PAGE);
}
static void file_opened_twice_private(void) { file_opened_twice(MAP_PRIVATE); }
static void file_opened_twice_shared(void) { file_opened_twice(MAP_SHARED); }
static void file_and_anonymous(void) {
    used = (n + 1) * PAGE;
    int fd = file("half", 0, used);
    for (long i = 0; i <= n; i++)
        map(at + i * PAGE, PAGE, PROT_READ, i % 2 ? ANON : MAP_PRIVATE, i % 2 ? -1 : fd, 0);
}
static void file_shared_anonymous(void) {
    used = (n + 1) * PAGE;
    for (long i = 0; i <= n; i++)
        map(at + i * PAGE, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}
static void file_deleted(void) {
    used = (n + 1) * PAGE;
    for (long i = 0; i <= n; i++) {
        int fd = file("gone", i, PAGE);
        map(at + i * PAGE, PAGE, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        char path[4096];
        snprintf(path, sizeof path, "%s/gone%ld", folder, i);
        must(unlink(path) == 0, path);
    }
}
static void file_offset(void) {
    used = (n + 1) * PAGE;
    int fd = file("back", 0, used);
    for (long i = 0; i <= n; i++)
        map(at + i * PAGE, PAGE, PROT_READ, MAP_PRIVATE, fd, (n - i) * PAGE);
}
static void file_offset_memfd(void) {
    used = (n + 1) * PAGE;
    int fd = memfd_create("heap", 0);
    must(fd >= 0 && ftruncate(fd, 2 * used) == 0, "memfd");
    for (long i = 0; i <= n; i++) map(at + i * PAGE, PAGE, RW, MAP_SHARED, fd, 2 * i * PAGE);
}
