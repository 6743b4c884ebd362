//! Facts about a running process that tell apart causes whose lists of mappings look alike.
//!
//! Stacks of threads and of coroutines have the same shape; what tells them apart is where the stack
//! pointers of the threads lie. Each fact is read when it is first asked for, because most processes
//! need none of them. A fact that cannot be read is `None`, never a guess.

use crate::maps::device;
use crate::{pagemap, processes};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::OnceLock;

/// Number of threads whose stack pointers are read at most.
const MOST_THREADS: usize = 2_000;

/// Where threads of a process have their stack pointers: those of the threads that were waiting in the
/// kernel, in ascending order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StackPointers(Vec<u64>);

impl StackPointers {
    fn new(mut all: Vec<u64>) -> StackPointers {
        all.sort_unstable();
        StackPointers(all)
    }

    /// Returns the number of threads whose stack pointers are known.
    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Returns how many of them are in `start..end`.
    pub fn within(&self, start: u64, end: u64) -> usize {
        let below = |address| self.0.partition_point(|sp| *sp < address);
        below(end).saturating_sub(below(start))
    }
}

/// Identity of a file: device and inode number, as in a list of mappings.
pub type FileKey = (u64, u64);

/// The facts of one process.
#[derive(Debug, Default)]
pub struct Evidence {
    pid: Option<i32>,
    stack_pointers: OnceLock<Option<StackPointers>>,
    open_files: OnceLock<Option<HashSet<FileKey>>>,
    overcommit: OnceLock<Option<u64>>,
    pagemap: OnceLock<Option<File>>,
    memory: OnceLock<Option<File>>,
}

impl Evidence {
    /// Prepares to read the facts of a process; without a process ID, none is known.
    pub fn of(pid: Option<i32>) -> Evidence {
        Evidence {
            pid,
            ..Evidence::default()
        }
    }

    /// Returns evidence with known stack pointers.
    pub fn with_stack_pointers(all: Vec<u64>) -> Evidence {
        Evidence {
            stack_pointers: OnceLock::from(Some(StackPointers::new(all))),
            ..Evidence::default()
        }
    }

    /// True if these are facts of a running process; of a list or a recording, none is known.
    pub fn is_of_running_process(&self) -> bool {
        self.pid.is_some() || self.stack_pointers.get().is_some_and(Option::is_some)
    }

    /// Returns the stack pointers of up to 2,000 threads. A thread that is running has none in
    /// `/proc`, and a process that the caller may not trace has none at all.
    pub fn stack_pointers(&self) -> Option<&StackPointers> {
        let read = || self.pid.and_then(stack_pointers);
        self.stack_pointers.get_or_init(read).as_ref()
    }

    /// Returns the files that the process has open.
    pub fn open_files(&self) -> Option<&HashSet<FileKey>> {
        let read = || self.pid.and_then(open_files);
        self.open_files.get_or_init(read).as_ref()
    }

    /// Returns `vm.overcommit_memory`, as the process itself sees the file.
    pub fn overcommit(&self) -> Option<u64> {
        let read = || {
            let own = Path::new("/proc").join(self.pid?.to_string()).join("root");
            let text = fs::read_to_string(own.join("proc/sys/vm/overcommit_memory")).ok()?;
            text.trim().parse().ok()
        };
        *self.overcommit.get_or_init(read)
    }

    /// Returns true if the page at `address` exists, in memory or in swap.
    pub fn is_touched(&self, address: u64) -> Option<bool> {
        let open = || File::open(format!("/proc/{}/pagemap", self.pid?)).ok();
        let pagemap = self.pagemap.get_or_init(open).as_ref()?;
        let page = address / rustix::param::page_size() as u64;
        let mut entry = [0; size_of::<u64>()];
        let at = page * entry.len() as u64;
        pagemap.read_exact_at(&mut entry, at).ok()?;
        Some(u64::from_ne_bytes(entry) & pagemap::FILLED != 0)
    }

    /// Returns true if the page before `end` holds the descriptor of a thread, as it does at the top of
    /// each stack that glibc has made. A page that has not been touched is not read.
    pub fn has_thread_descriptor(&self, end: u64) -> Option<bool> {
        let mut page = vec![0; rustix::param::page_size()];
        let start = end.checked_sub(page.len() as u64)?;
        if !self.is_touched(start)? {
            return Some(false);
        }
        self.read(start, &mut page)?;
        Some(contains_descriptor(&page, start))
    }

    /// Returns true if `start` is the start of a heap of glibc's malloc: its first word is the address
    /// of its arena, which lies at the start of this heap or of another one.
    pub fn is_malloc_heap(&self, start: u64) -> Option<bool> {
        /// Alignment of heaps (`HEAP_MAX_SIZE`), and a bound for the size of their headers.
        const HEAP: u64 = 64 << 20;
        const HEADER: u64 = 256;
        let mut word = [0; size_of::<u64>()];
        if !self.is_touched(start)? {
            return Some(false);
        }
        self.read(start, &mut word)?;
        let arena = u64::from_ne_bytes(word);
        let is_header = (1..HEADER).contains(&(arena % HEAP)) && arena.is_multiple_of(8);
        Some(start.is_multiple_of(HEAP) && is_header && arena > HEAP)
    }

    fn read(&self, start: u64, bytes: &mut [u8]) -> Option<()> {
        let open = || File::open(format!("/proc/{}/mem", self.pid?)).ok();
        let memory = self.memory.get_or_init(open).as_ref()?;
        memory.read_exact_at(bytes, start).ok()
    }
}

fn stack_pointers(pid: i32) -> Option<StackPointers> {
    let mut all = Vec::new();
    for tid in processes::threads(pid).iter().take(MOST_THREADS) {
        match fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")) {
            Ok(text) => all.extend(stack_pointer(&text)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
            // The thread has exited.
            Err(_) => {}
        }
    }
    Some(StackPointers::new(all))
}

/// Returns the last number but one of a line of `/proc/PID/syscall`: the line ends with the stack
/// pointer and the program counter, or it is `running`.
fn stack_pointer(line: &str) -> Option<u64> {
    let word = line.split_ascii_whitespace().rev().nth(1)?;
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

/// Checks whether a page contains a structure whose first and third words are its own address, but not
/// the second one, as in an empty list. The ABI of x86-64 wants the first one, to which the thread
/// register leads; glibc has the third one (`struct pthread`), musl has not.
fn contains_descriptor(page: &[u8], start: u64) -> bool {
    const WORD: usize = size_of::<u64>();
    let (words, _) = page.as_chunks::<WORD>();
    let addresses = (start..).step_by(WORD).map(u64::to_ne_bytes);
    let mut places = words.windows(3).zip(addresses);
    places.any(|(words, own)| words[0] == own && words[1] != own && words[2] == own)
}

fn open_files(pid: i32) -> Option<HashSet<FileKey>> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    // The link leads to the file itself, even if it has been deleted.
    let opened = entries.flatten().filter_map(|entry| {
        let file = fs::metadata(entry.path()).ok()?;
        let dev = file.dev();
        let dev = device(rustix::fs::major(dev).into(), rustix::fs::minor(dev).into())?;
        Some((dev, file.ino()))
    });
    Some(opened.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{self, Sender};
    use std::thread::{self, JoinHandle};

    /// The standard library allocates by glibc's malloc, which gives each thread an arena of its own.
    #[cfg(target_env = "gnu")]
    #[test]
    fn a_heap_of_malloc_is_told_from_other_memory() {
        let evidence = Evidence::of(Some(std::process::id() as i32));
        let threads: Vec<_> = (0..8)
            .map(|_| std::thread::spawn(|| Box::new(7_u64)))
            .collect();
        let heap = |value: &u64| std::ptr::from_ref(value) as u64 & !((64 << 20) - 1);
        let kept: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        let is_heap = |value: &u64| evidence.is_malloc_heap(heap(value)) == Some(true);
        let found = kept.iter().find(|value| is_heap(value));
        let heap = heap(found.expect("a thread has an arena"));
        assert_eq!(evidence.is_malloc_heap(heap + 8), Some(false));
        let on_stack = 7_u64;
        assert_eq!(
            evidence.is_malloc_heap(&raw const on_stack as u64),
            Some(false)
        );
        assert_eq!(Evidence::default().is_malloc_heap(0), None);
    }

    /// Starts a thread that waits until the sender is dropped; returns an address on its stack.
    fn waiting_thread() -> (u64, Sender<()>, JoinHandle<()>) {
        let (send, receive) = mpsc::channel::<u64>();
        let (end, wait) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let here = 0u8;
            send.send(std::ptr::from_ref(&here).addr() as u64).unwrap();
            let _ = wait.recv();
        });
        (receive.recv().unwrap(), end, thread)
    }

    #[test]
    fn the_stack_pointer_is_the_last_number_but_one() {
        let line = "202 0x7f 0x189 0x0 0x0 0x0 0xffffffff 0x7f3b9bdfe8f0 0x7f3b9c2e0f16\n";
        assert_eq!(stack_pointer(line), Some(0x7f3b_9bdf_e8f0));
        assert_eq!(stack_pointer("-1 0x7ffd00 0x7f3b\n"), Some(0x7f_fd00));
        for line in ["running\n", "", "x y", "0x1"] {
            assert_eq!(stack_pointer(line), None, "{line}");
        }
    }

    #[test]
    fn stack_pointers_are_counted_within_a_range() {
        let evidence = Evidence::with_stack_pointers(vec![30, 10, 20]);
        let pointers = evidence.stack_pointers().unwrap();
        assert_eq!(pointers.within(10, 30), 2);
        assert_eq!(pointers.within(30, 31), 1);
        assert_eq!(pointers.within(31, 40), 0);
    }

    #[test]
    fn a_waiting_thread_of_this_process_is_on_its_stack() {
        let (address, end, thread) = waiting_thread();
        let pid = std::process::id() as i32;
        let near = |evidence: Evidence| {
            let pointers = evidence.stack_pointers().cloned().unwrap_or_default();
            pointers.within(address - (64 << 10), address + (64 << 10)) > 0
        };
        // Until it waits, its stack pointer is not known.
        while !near(Evidence::of(Some(pid))) {
            thread::yield_now();
        }
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn a_page_is_touched_once_it_has_been_written() {
        let pid = std::process::id() as i32;
        let page = rustix::param::page_size();
        let mut pages = vec![0u8; 64 * page];
        let evidence = Evidence::of(Some(pid));
        let middle = pages.as_ptr().addr() as u64 + 32 * page as u64;
        assert_eq!(evidence.is_touched(middle), Some(false));
        pages[32 * page] = 1;
        assert_eq!(evidence.is_touched(middle), Some(true));
        assert_eq!(Evidence::of(None).is_touched(middle), None);
    }

    #[test]
    fn the_stack_of_a_thread_has_its_descriptor_at_the_top() {
        let (address, end, thread) = waiting_thread();
        let pid = std::process::id() as i32;
        let mappings = crate::maps::read(pid).unwrap();
        let contains =
            |entry: &&crate::maps::MapsEntry| (entry.start..entry.end).contains(&address);
        let stack = mappings.iter().find(contains).unwrap();
        let evidence = Evidence::of(Some(pid));
        assert_eq!(evidence.has_thread_descriptor(stack.end), Some(true));
        let middle = stack.start + (stack.end - stack.start) / 2;
        let middle = middle & !(rustix::param::page_size() as u64 - 1);
        assert_eq!(evidence.has_thread_descriptor(middle), Some(false));
        assert_eq!(Evidence::of(None).has_thread_descriptor(stack.end), None);
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn an_open_file_has_the_key_of_its_mapping() {
        let file = File::open("/proc/self/exe").unwrap();
        let pid = std::process::id() as i32;
        let open = Evidence::of(Some(pid)).open_files().cloned().unwrap();
        let mappings = crate::maps::read(pid).unwrap();
        assert!(
            mappings
                .iter()
                .any(|entry| open.contains(&(entry.dev, entry.ino)))
        );
        drop(file);
        assert_eq!(
            Evidence::of(Some(pid)).overcommit().map(|n| n <= 2),
            Some(true)
        );
        let none = Evidence::of(None);
        assert!(none.open_files().is_none() && none.stack_pointers().is_none());
    }
}
