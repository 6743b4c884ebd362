//! Which program a process executes: tells whether it has called `execve`.
//!
//! A descriptor of `/proc/PID/mem` refers to an address space, and stays usable after the process has
//! replaced it, as long as another process shares the old one (`CLONE_VM`). The registers of such a
//! process must not be set to addresses of the old program.
//!
//! # Linux
//! `fs/binfmt_elf.c`: each `execve` writes an auxiliary vector with random addresses, and 16 random
//! bytes to the stack (`AT_RANDOM`).

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Types of entries of the auxiliary vector.
const AT_RANDOM: u64 = 25;
const AT_SYSINFO_EHDR: u64 = 33;

/// What the kernel wrote for a program when it was executed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Image {
    auxiliary: Vec<u8>,
    random: Option<[u8; 16]>,
}

impl Image {
    /// Reads the image of process or thread `pid`, whose memory is `memory`. Empty if it has ended.
    pub(super) fn read(pid: i32, memory: &File) -> Image {
        let auxiliary = std::fs::read(format!("/proc/{pid}/auxv")).unwrap_or_default();
        let mut image = Image {
            auxiliary,
            random: None,
        };
        let mut bytes = [0; 16];
        let at = image.entry(AT_RANDOM);
        let read = at.and_then(|at| memory.read_exact_at(&mut bytes, at).ok());
        image.random = read.map(|()| bytes);
        image
    }

    /// True if `now`, read later of the same process, is the same image. A program may have cleared
    /// the random bytes meanwhile, as Go does when it starts.
    pub(super) fn is_still(&self, now: &Image) -> bool {
        let is_cleared = now.random == Some([0; 16]);
        self.auxiliary == now.auxiliary && (self.random == now.random || is_cleared)
    }

    /// Reads the image that process or thread `pid` has now.
    pub(super) fn now(pid: i32) -> Image {
        let memory = File::open(format!("/proc/{pid}/mem"));
        memory.map_or_else(|_| Image::default(), |memory| Image::read(pid, &memory))
    }

    /// Returns the address of the vDSO, as the kernel mapped it.
    pub(super) fn vdso(&self) -> Option<u64> {
        self.entry(AT_SYSINFO_EHDR).filter(|&at| at != 0)
    }

    fn entry(&self, kind: u64) -> Option<u64> {
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).unwrap_or(0);
        let (pairs, _) = self.auxiliary.as_chunks::<16>();
        let found = pairs.iter().find(|pair| word(&pair[..8]) == kind);
        found.map(|pair| word(&pair[8..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};
    use vmarea_linux_sys::child::Child;

    #[test]
    fn another_program_is_another_image_although_the_old_memory_can_be_read() {
        let mut child = Child::start(|inside| {
            inside.wait();
            inside.exec(c"/bin/sh");
        });
        let old = File::open(format!("/proc/{}/mem", child.pid())).expect("memory");
        let before = Image::read(child.pid(), &old);
        assert!(before.random.is_some() && before.vdso().is_some());
        // The child is a fork of this process, and has executed nothing.
        assert_eq!(Image::now(child.pid()), before);
        assert_eq!(Image::now(std::process::id().cast_signed()), before);
        child.go_on();
        let until = Instant::now() + Duration::from_secs(60);
        while Image::now(child.pid()) == before {
            assert!(Instant::now() < until, "no other image");
            std::thread::yield_now();
        }
    }
}
