/* Calls one kernel for a process of another architecture, whose memory it sees page by page.

   An order comes on standard input as two words: number of threads, address of the arguments. Every page that the
   kernel touches is asked for when it is first touched, and all are sent back at the end. */

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, MAX_PAGES = 1 << 16 };
enum { WANTED = 1, TOUCHED = 2, READY = 3, TAKEN = 4 }; /* first word of what is said; the second is an address */

extern void kernel(int64_t thread, int64_t threads, void *arguments);

static uint64_t pages[MAX_PAGES];
static int page_count;

static void give(const void *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = write(1, (const char *)data + done, size - done);
        if (n <= 0)
            _exit(2);
        done += n;
    }
}

static void take(void *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = read(0, (char *)data + done, size - done);
        if (n <= 0)
            _exit(n == 0 ? 0 : 2);
        done += n;
    }
}

static void say(uint64_t what, uint64_t address)
{
    uint64_t words[2] = {what, address};
    give(words, sizeof words);
}

static void fetch(int signal, siginfo_t *info, void *context)
{
    uint64_t address = (uint64_t)info->si_addr & -(uint64_t)PAGE;
    void *page = mmap((void *)address, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != (void *)address || page_count == MAX_PAGES) {
        say(TAKEN, address);
        _exit(3);
    }
    say(WANTED, address);
    take(page, PAGE);
    pages[page_count++] = address;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = fetch, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    for (;;) {
        int64_t order[2];
        take(order, sizeof order);
        for (int64_t thread = 0; thread < order[0]; thread++)
            kernel(thread, order[0], (void *)order[1]);
        for (int i = 0; i < page_count; i++) {
            say(TOUCHED, pages[i]);
            give((void *)pages[i], PAGE);
            munmap((void *)pages[i], PAGE);
        }
        page_count = 0;
        say(READY, 0);
    }
}
