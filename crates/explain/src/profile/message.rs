//! Messages in the wire format of Protocol Buffers, of which a profile needs numbers, texts, lists of
//! numbers and messages within messages.
//!
//! A field consists of its number and kind, and its value. Fields may come in any order, those that
//! are lists also between others, and a field that is absent is zero or empty.

use vmarea_trace::varint;

/// A message to which fields are added.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

/// How the value of a field is written, as its lowest three bits say.
const NUMBER: u64 = 0;
const BYTES: u64 = 2;

impl Message {
    /// Adds a number, unless it is 0. A negative one is written as it is in 64 bits.
    pub fn number(mut self, field: u64, number: u64) -> Message {
        if number != 0 {
            varint::put(&mut self.0, field << 3 | NUMBER);
            varint::put(&mut self.0, number);
        }
        self
    }

    /// Adds a list of numbers.
    pub fn numbers(mut self, field: u64, numbers: &[u64]) -> Message {
        let mut list = Message::default();
        for &number in numbers {
            varint::put(&mut list.0, number);
        }
        self.add(field, &list.0);
        self
    }

    /// Adds a message, to a list if there are several with this number.
    pub fn message(mut self, field: u64, inner: &Message) -> Message {
        self.add(field, &inner.0);
        self
    }

    /// Adds the bytes of a text or of a message, also if there are none.
    pub fn add(&mut self, field: u64, bytes: &[u8]) {
        varint::put(&mut self.0, field << 3 | BYTES);
        varint::put(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples in the description of the format.
    #[test]
    fn fields_are_encoded_as_documented() {
        let number = Message::default().number(1, 150);
        assert_eq!(number.bytes(), [0x08, 0x96, 0x01]);
        let mut text = Message::default();
        text.add(2, b"testing");
        assert_eq!(text.bytes(), b"\x12\x07testing");
        let inner = Message::default().message(3, &number);
        assert_eq!(inner.bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let list = Message::default().numbers(6, &[3, 270, 86942]);
        assert_eq!(
            list.bytes(),
            [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]
        );
        let negative = Message::default().number(1, -2_i64 as u64);
        assert_eq!(negative.bytes().len(), 11);
        assert!(Message::default().number(1, 0).bytes().is_empty());
    }
}
