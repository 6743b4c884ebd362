//! The messages between a repair and the process that traces for it, as 64-bit words.
//!
//! Both ends are the same program, so there is no version and no other byte order.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use vmarea_merge::Refusal;
use vmarea_merge::types::VmFlags;

use crate::driver::Progress;
use crate::{Fix, Fixed, Kept, KeptReason, RepairError, Report};

/// Maximum number of words in a message.
const MOST_WORDS: u64 = 1 << 16;

/// A value that can be sent.
pub(super) trait Wire: Sized {
    /// Appends the value to a message.
    fn put(&self, to: &mut Vec<u64>);
    /// Takes the value from the start of a message.
    fn take(from: &mut &[u64]) -> Option<Self>;
}

/// Sends one message.
pub(super) fn send(to: &mut UnixStream, value: &impl Wire) -> io::Result<()> {
    let mut words = vec![0];
    value.put(&mut words);
    words[0] = words.len() as u64 - 1;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    to.write_all(&bytes)
}

/// Receives one message.
pub(super) fn receive<T: Wire>(from: &mut UnixStream) -> io::Result<T> {
    let mut word = [0; 8];
    from.read_exact(&mut word)?;
    let count = u64::from_ne_bytes(word).min(MOST_WORDS);
    let mut bytes = vec![0; count as usize * 8];
    from.read_exact(&mut bytes)?;
    let words: Vec<u64> = bytes
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_ne_bytes(*word))
        .collect();
    T::take(&mut &words[..]).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn word(from: &mut &[u64]) -> Option<u64> {
    let (first, rest) = from.split_first()?;
    *from = rest;
    Some(*first)
}

macro_rules! numbers {
    ($($kind:ty),*) => {$(
        impl Wire for $kind {
            fn put(&self, to: &mut Vec<u64>) {
                to.push(*self as u64);
            }
            fn take(from: &mut &[u64]) -> Option<$kind> {
                word(from).map(|word| word as $kind)
            }
        }
    )*};
}
numbers!(u64, i64, i32, usize);

/// Sends a structure field by field.
macro_rules! fields {
    ($kind:ident { $($field:ident),* $(,)? }) => {
        impl Wire for $kind {
            fn put(&self, to: &mut Vec<u64>) {
                let $kind { $($field),* } = self;
                $($field.put(to);)*
            }
            fn take(from: &mut &[u64]) -> Option<$kind> {
                $(let $field = Wire::take(from)?;)*
                Some($kind { $($field),* })
            }
        }
    };
}

fields!(Progress {
    mappings,
    of,
    long_pauses
});
fields!(Fixed {
    fix,
    places,
    apart,
    fewer,
    stops,
    longest_pause,
    long_pauses,
    left
});
fields!(Kept {
    mappings,
    by_reason,
    special_flags
});
fields!(Report {
    before,
    after,
    runs,
    left,
    pieces,
    bytes,
    copied,
    longest_pause,
    long_pauses,
    total,
    forks,
    kept,
});

impl Wire for () {
    fn put(&self, _: &mut Vec<u64>) {}
    fn take(_: &mut &[u64]) -> Option<()> {
        Some(())
    }
}

impl Wire for bool {
    fn put(&self, to: &mut Vec<u64>) {
        to.push(u64::from(*self));
    }
    fn take(from: &mut &[u64]) -> Option<bool> {
        word(from).map(|word| word != 0)
    }
}

impl Wire for Duration {
    fn put(&self, to: &mut Vec<u64>) {
        to.extend([self.as_secs(), self.subsec_nanos().into()]);
    }
    fn take(from: &mut &[u64]) -> Option<Duration> {
        Some(Duration::new(word(from)?, word(from)? as u32))
    }
}

impl Wire for String {
    fn put(&self, to: &mut Vec<u64>) {
        self.bytes().map(u64::from).collect::<Vec<_>>().put(to);
    }
    fn take(from: &mut &[u64]) -> Option<String> {
        let bytes = Vec::<u64>::take(from)?.into_iter().map(|byte| byte as u8);
        String::from_utf8(bytes.collect()).ok()
    }
}

impl Wire for VmFlags {
    fn put(&self, to: &mut Vec<u64>) {
        to.push(self.bits());
    }
    fn take(from: &mut &[u64]) -> Option<VmFlags> {
        word(from).map(VmFlags::from_bits_retain)
    }
}

impl Wire for io::Error {
    fn put(&self, to: &mut Vec<u64>) {
        let number = self.raw_os_error();
        number.put(to);
        if number.is_none() {
            self.to_string().put(to);
        }
    }
    fn take(from: &mut &[u64]) -> Option<io::Error> {
        match <Option<i32> as Wire>::take(from)? {
            Some(number) => Some(io::Error::from_raw_os_error(number)),
            None => String::take(from).map(io::Error::other),
        }
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, to: &mut Vec<u64>) {
        self.is_some().put(to);
        self.iter().for_each(|value| value.put(to));
    }
    fn take(from: &mut &[u64]) -> Option<Option<T>> {
        match bool::take(from)? {
            true => T::take(from).map(Some),
            false => Some(None),
        }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, to: &mut Vec<u64>) {
        self.len().put(to);
        self.iter().for_each(|value| value.put(to));
    }
    fn take(from: &mut &[u64]) -> Option<Vec<T>> {
        let len = usize::take(from)?.min(from.len() + 1);
        (0..len).map(|_| T::take(from)).collect()
    }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    fn put(&self, to: &mut Vec<u64>) {
        self.is_ok().put(to);
        match self {
            Ok(value) => value.put(to),
            Err(error) => error.put(to),
        }
    }
    fn take(from: &mut &[u64]) -> Option<Result<T, E>> {
        match bool::take(from)? {
            true => T::take(from).map(Ok),
            false => E::take(from).map(Err),
        }
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, to: &mut Vec<u64>) {
        self.0.put(to);
        self.1.put(to);
    }
    fn take(from: &mut &[u64]) -> Option<(A, B)> {
        Some((A::take(from)?, B::take(from)?))
    }
}

impl Wire for BTreeMap<KeptReason, u64> {
    fn put(&self, to: &mut Vec<u64>) {
        let pairs = self.iter().map(|(reason, n)| (*reason, *n));
        pairs.collect::<Vec<_>>().put(to);
    }
    fn take(from: &mut &[u64]) -> Option<BTreeMap<KeptReason, u64>> {
        Some(Vec::take(from)?.into_iter().collect())
    }
}

impl Wire for Fix {
    fn put(&self, to: &mut Vec<u64>) {
        Fix::ALL
            .iter()
            .position(|fix| fix == self)
            .unwrap_or(usize::MAX)
            .put(to);
    }
    fn take(from: &mut &[u64]) -> Option<Fix> {
        Fix::ALL.get(usize::take(from)?).copied()
    }
}

/// All reasons that need no further data, then those with a refusal.
fn reasons() -> impl Iterator<Item = KeptReason> {
    KeptReason::PLAIN
        .into_iter()
        .chain(Refusal::ALL.map(KeptReason::Differ))
}

impl Wire for KeptReason {
    fn put(&self, to: &mut Vec<u64>) {
        reasons()
            .position(|reason| reason == *self)
            .unwrap_or(usize::MAX)
            .put(to);
    }
    fn take(from: &mut &[u64]) -> Option<KeptReason> {
        reasons().nth(usize::take(from)?)
    }
}

/// Sends an error: its place in this list, then its fields.
macro_rules! errors {
    ($($n:literal $name:ident $({ $($field:ident),* })? $(( $($item:ident),* ))?),* $(,)?) => {
        impl Wire for RepairError {
            fn put(&self, to: &mut Vec<u64>) {
                match self {
                    $(RepairError::$name $({ $($field),* })? $(( $($item),* ))? => {
                        to.push($n);
                        $($($field.put(to);)*)?
                        $($($item.put(to);)*)?
                    })*
                }
            }
            fn take(from: &mut &[u64]) -> Option<RepairError> {
                match word(from)? {
                    $($n => {
                        $($(let $field = Wire::take(from)?;)*)?
                        $($(let $item = Wire::take(from)?;)*)?
                        Some(RepairError::$name $({ $($field),* })? $(( $($item),* ))?)
                    })*
                    _ => None,
                }
            }
        }
    };
}

errors!(
    0 BadRange(start, end),
    1 Userfaultfd,
    2 TooOld,
    3 PauseTooShort { asked, needed },
    4 Maps { pid, cause },
    5 System { what, cause },
    6 NoProcess(pid),
    7 ForeignNumbers(pid),
    8 NoMemory(pid),
    9 Ended(pid),
    10 Replaced(pid),
    11 Traced { pid, tracer },
    12 Forbidden(pid),
    13 Bits32(pid),
    14 Seccomp(pid),
    15 SharedMemory { pid, other },
    16 CannotStop { pid, tid },
    17 NoSlack(pid),
    18 TargetUserfaultfd(pid),
    19 NoRoom(pid),
    20 NoThread { pid, cause },
    21 NoCode(pid),
    22 ShadowStack(pid),
    23 Unsupported,
    24 AtWork { pid, by },
    25 LeftBehind { pid, cause },
    26 GuardOpen { pid, guard, cause },
    27 Tracer(pid),
    28 GoesOn(pid),
    29 InHandler { pid, tid },
);

impl Wire for &'static str {
    fn put(&self, to: &mut Vec<u64>) {
        (*self).to_owned().put(to);
    }
    fn take(from: &mut &[u64]) -> Option<&'static str> {
        // A merge fails at most once.
        String::take(from).map(|text| &*text.leak())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent<T: Wire>(value: &T) -> T {
        let (mut a, mut b) = UnixStream::pair().expect("sockets");
        send(&mut a, value).expect("sent");
        receive(&mut b).expect("received")
    }

    #[test]
    fn results_arrive_as_they_were_sent() {
        let mut kept = Kept::default();
        reasons().for_each(|reason| kept.add(reason));
        let report = Report {
            before: 7,
            longest_pause: Duration::from_micros(1_234_567),
            kept,
            ..Report::default()
        };
        assert_eq!(sent(&report), report);
        let fixed = Fixed {
            fewer: Some(-3),
            ..Fixed::nothing(Fix::Priming)
        };
        assert_eq!(sent(&vec![fixed; 3]), vec![fixed; 3]);
    }

    #[test]
    fn errors_arrive_as_they_were_sent() {
        let cause = || io::Error::from_raw_os_error(libc::EMFILE);
        for error in [
            RepairError::System {
                what: "a test",
                cause: cause(),
            },
            RepairError::LeftBehind {
                pid: 3,
                cause: io::Error::other("a reason"),
            },
            RepairError::AtWork { pid: 3, by: None },
            RepairError::InHandler { pid: 3, tid: 4 },
            RepairError::Tracer(-1),
        ] {
            let result: Result<(), RepairError> = sent(&Err(error));
            let again = sent(&result);
            assert_eq!(format!("{again:?}"), format!("{result:?}"));
        }
    }
}
