// Threads over sentences, the memory each of them works in, and threads that work in phases.
#ifndef DCNN_PARALLEL_H
#define DCNN_PARALLEL_H

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "kernels.h"

// Aligned memory that is given back with its owner; throws std::bad_alloc.
class Memory {
  public:
    explicit Memory(int64_t floats = 0) { grow(floats); }
    ~Memory() { std::free(data_); }
    Memory(const Memory&) = delete;
    Memory& operator=(Memory&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    Memory(Memory&& other) noexcept : data_(other.data_), size_(other.size_) {
        other.data_ = nullptr;
        other.size_ = 0;
    }

    // At least this many floats; what was in it is lost when it grows.
    float* grow(int64_t floats) {
        if (floats > size_) {
            std::free(data_);
            size_ = 0;
            const size_t bytes = sizeof(float) * static_cast<size_t>(floats);
            data_ = static_cast<float*>(
                std::aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT));
            if (!data_) throw std::bad_alloc();
            size_ = floats;
        }
        return data_;
    }

    float* get() const { return data_; }
    int64_t size() const { return size_; }
    void release() {
        std::free(data_);
        data_ = nullptr;
        size_ = 0;
    }

  private:
    float* data_ = nullptr;
    int64_t size_ = 0;
};

// Calls work(part) for every part, each on a thread of its own, the first on the caller's. Threads
// are made for the call. Work must not throw.
template <class Work>
void in_parallel(int64_t parts, const Work& work) {
    if (parts == 1) return work(int64_t{0});
    std::vector<std::thread> threads;
    int64_t part = 1;
    try {
        threads.reserve(static_cast<size_t>(parts));
        for (; part < parts; ++part) threads.emplace_back(work, part);
    } catch (const std::exception&) {
        // Fewer threads than asked for: the caller does the rest itself.
    }
    for (int64_t rest = part; rest < parts; ++rest) work(rest);
    work(int64_t{0});
    for (std::thread& thread : threads) thread.join();
}

inline int64_t parts_of(int64_t sentences, int32_t threads) {
    const int64_t wanted = threads < 1 ? 1 : threads;
    return wanted < sentences ? wanted : (sentences < 1 ? 1 : sentences);
}

// Calls work(part, first, end, part's scratch) for every part and its fixed range of sentences.
template <class Work>
int32_t over_parts(int64_t sentences, int64_t parts, int64_t scratch, const Work& work) {
    std::atomic<int32_t> status{DCNN_OK};
    in_parallel(parts, [&](int64_t part) {
        try {
            Memory memory(scratch);
            work(part, sentences * part / parts, sentences * (part + 1) / parts, memory.get());
        } catch (const std::bad_alloc&) {
            status = DCNN_NO_MEMORY;
        }
    });
    return status;
}

// Calls work(sentence, part, part's scratch) for every sentence.
template <class Work>
int32_t over_sentences(int64_t sentences, int64_t parts, int64_t scratch, const Work& work) {
    return over_parts(sentences, parts, scratch,
                      [&](int64_t part, int64_t first, int64_t end, float* memory) {
                          for (int64_t i = first; i < end; ++i) work(i, part, memory);
                      });
}

// Waits up to so many times as long as a processor pauses, some 10 to 50 ns, and says whether the condition
// holds then. Falling asleep and waking takes longer than most waits between threads. Now and then other
// threads get the core, if any wants it.
template <class Condition>
bool spin(int spins, const Condition& holds) {
    constexpr int SPINS_PER_YIELD = 64;
    for (int i = 1; i <= spins; ++i) {
        if (holds()) return true;
        if (i % SPINS_PER_YIELD == 0) std::this_thread::yield();
#if defined(__SSE2__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("isb" ::: "memory");
#endif
    }
    return holds();
}

// Threads that are kept between calls. A training step needs them every millisecond, and the system
// often starts a new thread on the core of its creator, where it runs too late to help. A forked
// process does not have the threads of its parent's pool, so it makes its own.
class ThreadPool {
  public:
    using Work = void (*)(void*);
    struct Worker;

    // Calls work(argument) and then left(argument) on a thread that waits, or on a new one; throws
    // std::exception if there is neither. The thread is back in the pool before it calls left: who
    // waits for that call finds it there, instead of making another that competes with it for a core.
    static Worker* start(Work work, Work left, void* argument) {
        ThreadPool& pool = current();
        Worker* worker = nullptr;
        {
            const std::lock_guard<std::mutex> lock(pool.mutex_);
            if (!pool.waiting_.empty()) {
                worker = pool.waiting_.back();
                pool.waiting_.pop_back();
            } else {
                pool.waiting_.reserve(++pool.workers_);  // to return without an allocation
            }
        }
        if (worker) {
            worker->give(work, left, argument);
            return worker;
        }
        try {
            worker = new Worker{pool, work, left, {argument}};
            std::thread([worker] { worker->run(); }).detach();
            return worker;
        } catch (...) {
            delete worker;
            const std::lock_guard<std::mutex> lock(pool.mutex_);
            --pool.workers_;
            throw;
        }
    }

    // Takes back what the worker was given, unless it has begun with it; says whether it was taken back.
    // Work of others, which it may have been given since, has another argument.
    static bool withdraw(Worker* worker, void* argument) {
        void* expected = argument;
        if (!worker->argument.compare_exchange_strong(expected, nullptr)) return false;
        const std::lock_guard<std::mutex> lock(worker->pool.mutex_);
        worker->pool.waiting_.push_back(worker);
        return true;
    }

    struct Worker {
        // Some 0.3 ms, in which a training has its next step: a thread that sleeps wakes too late for it, and
        // sometimes on the core of the one that woke it.
        static constexpr int SPINS = 10000;
        ThreadPool& pool;
        Work work, left;
        std::atomic<void*> argument;  // none while there is nothing to do; who takes it does the work
        std::mutex mutex{};
        pthread_cond_t given = PTHREAD_COND_INITIALIZER;

        void give(Work next, Work then, void* with) {
            work = next;
            left = then;
            const std::lock_guard<std::mutex> lock(mutex);
            argument = with;
            pthread_cond_signal(&given);
        }
        void run() {
            for (;;) {
                if (void* const own = argument.exchange(nullptr)) {
                    const Work own_left = left;
                    work(own);
                    {  // nobody gives it work before the pool has it back
                        const std::lock_guard<std::mutex> lock(pool.mutex_);
                        pool.waiting_.push_back(this);
                    }
                    own_left(own);
                }
                if (spin(SPINS, [this] { return argument.load() != nullptr; })) continue;
                const std::lock_guard<std::mutex> lock(mutex);
                while (!argument) pthread_cond_wait(&given, mutex.native_handle());
            }
        }
    };

  private:
    // Never destroyed: its threads wait until the process ends.
    static ThreadPool& current() {
        static std::atomic<ThreadPool*> kept{nullptr};
        ThreadPool* pool = kept;
        if (pool && pool->process_ == getpid()) return *pool;
        ThreadPool* fresh = new ThreadPool;
        if (kept.compare_exchange_strong(pool, fresh)) return *fresh;
        delete fresh;
        return *pool;
    }

    const pid_t process_ = getpid();
    std::mutex mutex_;
    std::vector<Worker*> waiting_;
    size_t workers_ = 0;
};

// Threads that go through the phases of one call together. Any thread may do any task, so results must
// not depend on which one does. A phase ends with its last task: no thread waits for another that has
// not started yet, or that other programs keep from a core, unless it has taken a task. Work must not
// throw.
class Team {
  public:
    using Call = void (*)(Team&, const void*);
    // Every thread calls call(team, work).
    Team(Call call, const void* work) : call_(call), work_(work) {}

    // Calls work(task) for every task of phase 0, 1, ..., and returns when all of them are done.
    // Every thread of the team calls it for every phase.
    template <class Work>
    void each(size_t phase, int64_t tasks, const Work& work) {
        Phase& own = phases_[phase];
        for (int64_t task; (task = own.next.fetch_add(1)) < tasks;) {
            work(task);
            if (own.done.fetch_add(1) + 1 == tasks) notify();
        }
        wait([&] { return own.done >= tasks; });
    }

    // Counts the caller and the threads that may still join; the last to let go deletes the team. Not a
    // shared_ptr, which needs a newer glibc than a wheel may require.
    void hold() { ++holders_; }
    void let_go() {
        if (--holders_ == 0) delete this;
    }

    // A thread of the pool joins the team, unless it comes too late.
    static void join(void* joined) {
        Team* team = static_cast<Team*>(joined);
        ++team->inside_;
        team->wait([&] { return team->state_ != WAITING; });
        if (team->state_ == OPEN) team->call_(*team, team->work_);
    }
    static void leave(void* joined) {
        Team* team = static_cast<Team*>(joined);
        --team->inside_;
        team->notify();
        team->let_go();
    }
    void open() {
        state_ = OPEN;
        notify();
    }
    // Returns when all that joined have left.
    void close() {
        state_ = CLOSED;
        notify();
        wait([&] { return inside_ == 0; });
    }

  private:
    void notify() {
        const std::lock_guard<std::mutex> lock(mutex_);
        pthread_cond_broadcast(&changed_);
    }

    template <class Condition>
    void wait(const Condition& holds) {
        constexpr int SPINS = 10000;  // the others are about to be done
        if (spin(SPINS, holds)) return;
        const std::lock_guard<std::mutex> lock(mutex_);
        while (!holds()) pthread_cond_wait(&changed_, mutex_.native_handle());
    }

    enum State { WAITING, OPEN, CLOSED };
    struct Phase {
        std::atomic<int64_t> next{0}, done{0};
    };
    static constexpr size_t MOST_PHASES = 8;
    const Call call_;
    const void* const work_;
    Phase phases_[MOST_PHASES];
    std::atomic<State> state_{WAITING};
    std::atomic<int64_t> inside_{0}, holders_{1};
    std::mutex mutex_;
    // Not std::condition_variable: waiting on it asks for a newer libstdc++ than a wheel may.
    pthread_cond_t changed_ = PTHREAD_COND_INITIALIZER;
};

// Calls prepare() on the caller's thread while others start, and then work(team) on every thread of a
// team of up to so many, the caller's among them.
template <class Prepare, class Work>
void with_team(int64_t wanted, const Prepare& prepare, const Work& work) {
    // On the heap: a thread that starts after the call has returned still finds the team, closed.
    Team* team = new Team(
        [](Team& own, const void* shared) { (*static_cast<const Work*>(shared))(own); }, &work);
    std::vector<ThreadPool::Worker*> others;
    // Those that have not begun, as another program has their core, go back to the pool: the next call
    // would make others in their place.
    const auto withdraw = [&] {
        for (ThreadPool::Worker* other : others)
            if (ThreadPool::withdraw(other, team)) team->let_go();
    };
    try {
        for (int64_t i = 1; i < wanted; ++i) {
            team->hold();
            others.reserve(static_cast<size_t>(wanted));
            others.push_back(ThreadPool::start(Team::join, Team::leave, team));
        }
    } catch (const std::exception&) {
        team->let_go();  // fewer threads than asked for: the others do their tasks
    }
    try {
        prepare();
    } catch (...) {
        withdraw();
        team->close();
        team->let_go();
        throw;
    }
    team->open();
    work(*team);
    withdraw();
    team->close();
    team->let_go();
}

#endif
