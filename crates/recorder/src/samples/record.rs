//! Decodes the records of a ring.
//!
//! A record is a header of eight bytes (kind, mode, length) and a body whose fields were chosen
//! when the event was opened. Samples that the kernel dropped, and records that cannot be decoded,
//! are counted as lost.

use vmarea_linux_sys::perf::{RECORD_LOST, RECORD_LOST_SAMPLES, RECORD_SAMPLE, RECORD_THROTTLE};

use super::programs;
use super::tracepoint::{FormatMismatch, is_kernel_address};
use super::{Sample, Source};

const HEAD: usize = 8;
/// Size of the thread and time fields at the end of every record that is not a sample.
const TRAILER: usize = 16;

/// Decodes the records of one set of rings, and counts seen and lost samples.
#[derive(Debug)]
pub(super) struct Decoder {
    source: Source,
    /// Number of samples read from the rings, whether used or not.
    seen: u64,
    /// Number of samples reported as lost so far.
    lost: u64,
    /// Time of the previous record.
    last: u64,
}

impl Decoder {
    pub(super) fn new(source: Source) -> Decoder {
        Decoder {
            source,
            seen: 0,
            lost: 0,
            last: 0,
        }
    }

    /// True if some of the `counted` samples have been neither read nor reported as lost.
    pub(super) fn awaits(&self, counted: u64) -> bool {
        counted > self.seen + self.lost
    }

    /// Returns the number of samples read from the rings.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns how many of the `counted` samples were neither read nor reported as lost.
    pub(super) fn missing(&mut self, counted: u64) -> Option<u64> {
        let missing = counted.saturating_sub(self.seen + self.lost);
        self.lost += missing;
        (missing != 0).then_some(missing)
    }

    /// Decodes whole records and appends the samples to `out`.
    pub(super) fn decode(&mut self, mut bytes: &[u8], out: &mut Vec<Sample>) {
        while !bytes.is_empty() {
            let Some((kind, body, rest)) = split_record(bytes) else {
                // The lengths are inconsistent: the remaining bytes cannot be read.
                self.report_lost(1, out);
                return;
            };
            bytes = rest;
            let done = match kind {
                RECORD_SAMPLE => {
                    self.seen += 1;
                    self.sample(body).map(|sample| out.extend(sample))
                }
                RECORD_LOST => self.lost(body, 8, out),
                RECORD_LOST_SAMPLES => self.lost(body, 0, out),
                // From here on the kernel takes fewer samples, but does not report how many it
                // skips.
                RECORD_THROTTLE => {
                    self.report_lost(1, out);
                    Ok(())
                }
                _ => Ok(()),
            };
            if done.is_err() {
                out.push(Sample::Lost {
                    t: self.last,
                    count: 1,
                });
            }
        }
    }

    fn sample(&mut self, body: &[u8]) -> Result<Option<Sample>, FormatMismatch> {
        let pid = u32_at(body, 0).ok_or(FormatMismatch)? as i32;
        let tid = u32_at(body, 4).ok_or(FormatMismatch)? as i32;
        let t = u64_at(body, 8).ok_or(FormatMismatch)?;
        self.last = t;
        match self.source {
            Source::SoftwareUser => {
                let addr = u64_at(body, 16).ok_or(FormatMismatch)?;
                Ok((!is_kernel_address(addr)).then_some(Sample::Fault {
                    t,
                    pid,
                    tid,
                    addr,
                    write: None,
                    exec: false,
                    present: false,
                    kernel: false,
                }))
            }
            Source::Tracepoints(ref points) => {
                points.decode(t, pid, tid, raw(body).ok_or(FormatMismatch)?)
            }
            Source::Programs => programs::decode((t, pid, tid), raw(body).ok_or(FormatMismatch)?),
        }
    }

    /// Handles a record that reports dropped samples; their number is at offset `at` of the body.
    fn lost(
        &mut self,
        body: &[u8],
        at: usize,
        out: &mut Vec<Sample>,
    ) -> Result<(), FormatMismatch> {
        let count = u64_at(body, at).ok_or(FormatMismatch)?;
        let time_at = body.len().checked_sub(TRAILER).ok_or(FormatMismatch)? + 8;
        self.last = u64_at(body, time_at).ok_or(FormatMismatch)?;
        self.report_lost(count, out);
        Ok(())
    }

    fn report_lost(&mut self, count: u64, out: &mut Vec<Sample>) {
        self.lost = self.lost.saturating_add(count);
        out.push(Sample::Lost {
            t: self.last,
            count,
        });
    }
}

/// Returns the raw data of a sample whose last field they are.
fn raw(body: &[u8]) -> Option<&[u8]> {
    let len = u32_at(body, 16)? as usize;
    body.get(20..)?.get(..len)
}

/// Splits off the first record. Returns its kind, its body, and the remaining bytes.
pub(crate) fn split_record(bytes: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let kind = u32_at(bytes, 0)?;
    let len = u16::from_ne_bytes(bytes.get(6..8)?.try_into().ok()?);
    let (record, rest) = bytes.split_at_checked(len.into())?;
    Some((kind, record.get(HEAD..)?, rest))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let len = (HEAD + words.len() * 8) as u16;
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(len.to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn samples_and_losses_are_told_and_counted() {
        let mut decoder = Decoder::new(Source::SoftwareUser);
        let mut bytes = record(RECORD_SAMPLE, &[7 << 32 | 6, 100, 0x1000]);
        bytes.extend(record(RECORD_LOST, &[1, 42, 0, 200]));
        bytes.extend(record(RECORD_SAMPLE, &[7 << 32 | 6, 300, 1 << 63]));
        bytes.extend(record(99, &[1, 2, 3]));
        let mut out = Vec::new();
        decoder.decode(&bytes, &mut out);
        let fault = Sample::Fault {
            t: 100,
            pid: 6,
            tid: 7,
            addr: 0x1000,
            write: None,
            exec: false,
            present: false,
            kernel: false,
        };
        assert_eq!(out, [fault, Sample::Lost { t: 200, count: 42 }]);
        assert_eq!(decoder.missing(44), None);
        assert_eq!(decoder.missing(49), Some(5));
        assert_eq!(decoder.missing(49), None);
    }

    #[test]
    fn damaged_records_end_and_are_counted() {
        let good = record(RECORD_SAMPLE, &[1, 100, 0x1000]);
        for len in 1..good.len() {
            let mut out = Vec::new();
            Decoder::new(Source::SoftwareUser).decode(&good[..len], &mut out);
            assert_eq!(out, [Sample::Lost { t: 0, count: 1 }], "cut at {len}");
        }
        let mut empty = good.clone();
        empty[6..8].fill(0);
        let mut out = Vec::new();
        Decoder::new(Source::SoftwareUser).decode(&empty, &mut out);
        assert_eq!(out, [Sample::Lost { t: 0, count: 1 }]);
    }
}
