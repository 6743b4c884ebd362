//! Variable-length integers: LEB128, with zigzag for signed differences.
//!
//! [`put`] appends an integer; a `Cursor` reads integers. A cursor never reads past its slice and
//! rejects an integer that does not fit into 64 bits, so every integer has a bounded length (at
//! most `MAX_LEN`). Differences are modulo 2^64, so any two values have a difference.

/// Length of the longest integer in bytes.
pub(crate) const MAX_LEN: usize = 10;

/// Error for bytes that are missing or not a valid encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Appends `value`.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the difference `to - from` modulo 2^64.
#[inline]
pub(crate) fn put_diff(out: &mut Vec<u8>, from: u64, to: u64) {
    put(out, zigzag(to.wrapping_sub(from) as i64));
}

/// Maps small positive and negative values to small unsigned ones.
#[inline]
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Inverts [`zigzag`].
#[inline]
fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// A position in a slice of bytes.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the first byte.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns the number of remaining bytes.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    /// Reads the next byte.
    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self
            .bytes
            .split_first()
            .ok_or(Malformed("an event ends early"))?;
        self.bytes = rest;
        Ok(first)
    }

    /// Reads the next `len` bytes.
    #[inline]
    pub(crate) fn take(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(len).map_err(|_| Malformed("a length is too large"))?;
        let (taken, rest) = self
            .bytes
            .split_at_checked(len)
            .ok_or(Malformed("a length runs past the block"))?;
        self.bytes = rest;
        Ok(taken)
    }

    /// Reads the next integer.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for place in 1..MAX_LEN {
            let byte = self.byte()?;
            // The tenth byte holds the last of the 64 bits.
            if place == MAX_LEN - 1 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed("an integer is too long"))
    }

    /// Reads the next integer, which must fit into 32 bits.
    #[inline]
    pub(crate) fn varint32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.varint()?).map_err(|_| Malformed("an id is too large"))
    }

    /// Reads the next postcard value.
    pub(crate) fn postcard<T: serde::Deserialize<'a>>(&mut self) -> Result<T, Malformed> {
        let (value, rest) = postcard::take_from_bytes(self.bytes)
            .map_err(|_| Malformed("an event has an impossible field"))?;
        self.bytes = rest;
        Ok(value)
    }

    /// Reads the next difference and adds it to `from`.
    #[inline]
    pub(crate) fn diff(&mut self, from: u64) -> Result<u64, Malformed> {
        Ok(from.wrapping_add(unzigzag(self.varint()?) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_and_differences_come_back(value: u64, from: u64, to: u64) {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            prop_assert!(bytes.len() <= MAX_LEN);
            put_diff(&mut bytes, from, to);
            let mut cursor = Cursor::new(&bytes);
            prop_assert_eq!(cursor.varint(), Ok(value));
            prop_assert_eq!(cursor.diff(from), Ok(to));
            prop_assert_eq!(cursor.left(), 0);
        }
    }

    #[test]
    fn near_values_take_one_byte_and_extremes_ten() {
        let len = |from, to| {
            let mut bytes = Vec::new();
            put_diff(&mut bytes, from, to);
            bytes.len()
        };
        assert_eq!(len(5000, 5063), 1);
        assert_eq!(len(5000, 4936), 1);
        assert_eq!(len(0, 1 << 63), MAX_LEN);
    }

    #[test]
    fn too_long_and_cut_integers_are_refused() {
        assert!(Cursor::new(&[0xff; 11]).varint().is_err());
        assert!(Cursor::new(&[0x80; 9]).varint().is_err());
        let over = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert!(Cursor::new(&over).varint().is_err());
        assert!(Cursor::new(&[0]).take(2).is_err());
        assert!(Cursor::new(&[0]).take(u64::MAX).is_err());
    }
}
