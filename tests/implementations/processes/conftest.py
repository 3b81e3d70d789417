"""A shared library that does everything that a C library can do to a process."""

from __future__ import annotations

import shutil
import subprocess

import pytest

LIBRARY = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* dx = ct * x, and the ways to get that wrong */
void right(double* dx, const double* ct, const double* x, int n) {
    for (int i = 0; i < n; i++) dx[i] = ct[i] * x[i];
}
void accumulates(double* dx, const double* ct, const double* x, int n) {
    for (int i = 0; i < n; i++) dx[i] += ct[i] * x[i];
}
void writes_past(double* dx, const double* ct, const double* x, int n) {
    right(dx, ct, x, n);
    dx[n] = 1;
}
void writes_before(double* dx, const double* ct, const double* x, int n) {
    right(dx, ct, x, n);
    dx[-1] = 1;
}
void writes_far(double* dx, const double* ct, const double* x, int n) {
    right(dx, ct, x, n);
    ((volatile double*)dx)[1 << 27] = 1;
}
void reads_past(double* dx, const double* ct, const double* x, int n) {
    right(dx, ct, x, n);
    dx[0] += 0 * ((volatile double*)x)[n];
}
void partly(double* dx, const double* ct, const double* x, int n) { right(dx, ct, x, n / 2); }
void clobbers(double* dx, const double* ct, const double* x, int n) {
    right(dx, ct, x, n);
    ((double*)x)[1] = 7;
}
void rewrites(double* dx, const double* ct, const double* x, int n) {
    right(dx, ct, x, n);
    ((volatile double*)x)[1] = x[1];
}
void null_pointer(double* dx, const double* ct, const double* x, int n) { *(volatile int*)0 = 1; }
void divides_by_zero(double* dx, const double* ct, const double* x, int n) {
    volatile int zero = n - n;
    dx[0] = n / zero;
}
void aborts(double* dx, const double* ct, const double* x, int n) {
    fprintf(stderr, "assertion failed: n");
    abort();
}
void aborts_silently(double* dx, const double* ct, const double* x, int n) { abort(); }
void hangs(double* dx, const double* ct, const double* x, int n) { for (;;) usleep(1000); }
void exits(double* dx, const double* ct, const double* x, int n) { exit(0); }
void exits_at_once(double* dx, const double* ct, const double* x, int n) { _exit(3); }
void prints(double* dx, const double* ct, const double* x, int n) {
    printf("GRDC\r\n n is %d", n);
    right(dx, ct, x, n);
}
void floods(double* dx, const double* ct, const double* x, int n) {
    for (;;) printf("all work and no play\n");
}
void closes_stdout(double* dx, const double* ct, const double* x, int n) {
    close(1);
    right(dx, ct, x, n);
}
void unblocks_all(double* dx, const double* ct, const double* x, int n) {
    for (int i = 0; i < 1024; i++) fcntl(i, F_SETFL, O_NONBLOCK);
    right(dx, ct, x, n);
}
void closes_all(double* dx, const double* ct, const double* x, int n) {
    for (int i = 0; i < 1024; i++) close(i);
}
void steals_all(double* dx, const double* ct, const double* x, int n) {
    for (int i = 0; i < 1024; i++) close(i);
    for (int i = 0; i < 200; i++) dup(0 * fileno(tmpfile()));
}
void speaks(double* dx, const double* ct, const double* x, int n) {
    for (int i = 3; i < 200; i++) write(i, "nonsense", 8);
    right(dx, ct, x, n);
}
static void into_channel(const void* data, int size) {
    for (int i = 100; i < 110; i++) write(i, data, size);
}
void claims_to_begin(double* dx, const double* ct, const double* x, int n) {
    for (int i = 0; i < 3000; i++) { into_channel("C", 1); usleep(1000); }
    right(dx, ct, x, n);
}
void claims_to_load(double* dx, const double* ct, const double* x, int n) {
    for (int i = 0; i < 3000; i++) { into_channel("L", 1); usleep(1000); }
    right(dx, ct, x, n);
}
void claims_once(double* dx, const double* ct, const double* x, int n) {
    into_channel("C", 1);
    hangs(dx, ct, x, n);
}
void forges(double* dx, const double* ct, const double* x, int n) {
    const char head[] = "{\"kind\":\"outcome\",\"returned\":[null],\"strayed\":{},"
                        "\"blocks\":[{\"name\":\"dx\",\"offset\":0,\"nbytes\":24}]}";
    struct __attribute__((packed)) { char mark, magic[8]; uint32_t header; uint64_t payload; }
        frame = {'A', "GRDC\r\n\x1a\n", sizeof head - 1, 64};
    char bytes[sizeof frame + sizeof head - 1 + 64] = {0};
    memcpy(bytes, &frame, sizeof frame);
    memcpy(bytes + sizeof frame, head, sizeof head - 1);
    into_channel(bytes, sizeof bytes);
    right(dx, ct, x, n);
}
void reads_past_and_aborts(double* dx, const double* ct, const double* x, int n) {
    dx[0] = ((volatile double*)x)[n];
    abort();
}
void forks(double* dx, const double* ct, const double* x, int n) {
    right(dx, ct, x, n);
    fork();
}
void forks_and_stays(double* dx, const double* ct, const double* x, int n) {
    if (!fork()) for (;;) sleep(1000);
    hangs(dx, ct, x, n);
}
void daemonises(double* dx, const double* ct, const double* x, int n) {
    static char* none[] = {0};
    char told[16] = {0};
    int line[2];
    pipe(line);
    if (!fork()) {
        setsid();
        if (fork()) _exit(0);
        dup2(line[1], 1);
        execle("/bin/sh", "sh", "-c", "echo $$; exec sleep 1000 >&- 2>&-", (char*)0, none);
    }
    read(line[0], told, 15);
    printf("%s", told);
    right(dx, ct, x, n);
}
void is_killed(double* dx, const double* ct, const double* x, int n) { raise(SIGKILL); }
void ignores_signals(double* dx, const double* ct, const double* x, int n) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, 0);
    signal(SIGTERM, SIG_IGN);
    hangs(dx, ct, x, n);
}
void stops_itself(double* dx, const double* ct, const double* x, int n) { raise(SIGSTOP); }
void recurses(double* dx, const double* ct, const double* x, int n) {
    volatile double local[512];
    local[n] = n;
    recurses((double*)local, ct, x, n);
    dx[0] += local[n];
}
void moves_away(double* dx, const double* ct, const double* x, int n) {
    chdir("/");
    umask(0777);
    right(dx, ct, x, n);
}
static void* forever(void* _) { for (;;) usleep(1000); }
void leaves_a_thread(double* dx, const double* ct, const double* x, int n) {
    pthread_t thread;
    pthread_create(&thread, 0, forever, 0);
    right(dx, ct, x, n);
}
static int calls = 0;
void dies_the_third_time(double* dx, const double* ct, const double* x, int n) {
    right(dx, ct, x, n);
    if (++calls == 3) *(volatile int*)0 = 1;
}
void counts(double* dx) { *dx = ++calls; }

/* scalars, results, handles */
double every(int8_t a, uint8_t b, int16_t c, uint16_t d, int32_t e, uint32_t f, int64_t g,
             uint64_t h, float i, double j, _Bool k) {
    return a + 10. * b + c + d + e + f + g + (double)h + i + j + 1000 * k;
}
int status(void) { return -7; }
float single(float x) { return x / 3; }
_Bool truth(int x) { return x; }
uint64_t large(void) { return UINT64_MAX; }
void* make(int n) { return n < 0 ? 0 : calloc(n, 8); }
void put(double* handle, double v) { handle[0] = v; }
double get(double* handle) { return handle[0]; }
int is_null(void* p) { return !p; }
uint64_t address(void* p) { return (uint64_t)p; }
double denormal(double x) { return x / 2; }
"""
CONSTRUCTORS = {
    "crashing": "*(volatile int*)0 = 1;",
    "exiting": "_exit(5);",
    "printing": 'printf("loaded");',
    "hanging": "for (;;) usleep(1000);",
    "closing": "for (int i = 0; i < 1024; i++) close(i);",
}


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """`compiled(source, *flags)`: the path of a shared library."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    folder, made = tmp_path_factory.mktemp("c"), {}

    def build(source, *flags):
        if (source, flags) not in made:
            stem = folder / f"lib{len(made)}"
            stem.with_suffix(".c").write_text(source)
            words = ["gcc", "-O1", "-w", "-shared", "-fPIC", *flags]
            target = str(stem.with_suffix(".so"))
            subprocess.run(
                [*words, "-o", target, str(stem.with_suffix(".c")), "-lm", "-lpthread"], check=True
            )
            made[source, flags] = target
        return made[source, flags]

    return build


@pytest.fixture(scope="session")
def library(compiled):
    """The path of the library above."""
    return compiled(LIBRARY)


@pytest.fixture(scope="session")
def constructing(compiled):
    """`constructing(what)`: a library whose constructor does that."""
    head = "#include <stdio.h>\n#include <unistd.h>\n__attribute__((constructor)) void begin(void) "
    return lambda what: compiled(f"{head}{{ {CONSTRUCTORS[what]} }}\nint seven(void) {{return 7;}}")
