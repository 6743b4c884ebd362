// Fibers of Boost with protected stacks of 128 KiB, all of which wait.
#include <boost/fiber/all.hpp>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <vector>
int main(int, char **words) {
    boost::fibers::mutex gate;
    gate.lock();
    std::vector<boost::fibers::fiber> all;
    for (int i = 0; i < std::atoi(words[1]); i++)
        all.emplace_back(std::allocator_arg, boost::fibers::protected_fixedsize_stack(128 * 1024), [&] { gate.lock(); gate.unlock(); });
    boost::this_fiber::yield();
    std::puts("ready"), std::fflush(stdout);
    pause();
}
