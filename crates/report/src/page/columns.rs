//! Columns of numbers as text, a few bytes a number.
//!
//! Each number is stored as the difference from the one before it, in the variable-length form of
//! protobuf (`sint64`), and all of them as base64. The page's script decodes them (`data.js`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Encodes a column.
pub fn column(values: impl IntoIterator<Item = u64>) -> String {
    let mut bytes = Vec::new();
    let mut last = 0u64;
    for value in values {
        let difference = value.wrapping_sub(last) as i64;
        last = value;
        let mut rest = ((difference << 1) ^ (difference >> 63)) as u64;
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
    }
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_small_and_signed() {
        let decode = |text: &str| STANDARD.decode(text).unwrap();
        assert_eq!(decode(&column([1, 2, 1, 65])), [2, 2, 1, 0x80, 1]);
        assert_eq!(column([]), "");
        let page_of_vsyscall = 0xffff_ffff_ff60_0000u64 >> 12;
        let doubled = page_of_vsyscall << 1;
        assert!(doubled < 1 << 53, "the script has only 53 bits");
    }
}
