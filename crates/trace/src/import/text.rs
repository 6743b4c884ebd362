//! Parsers that several importers share: numbers, times, and names of flags.

use crate::event::Nanos;
use crate::names;
use winnow::ascii::{dec_int, dec_uint, digit1, hex_digit1};
use winnow::combinator::{alt, opt, preceded, separated, terminated};
use winnow::prelude::*;
use winnow::token::take_while;

/// Reads `0x1f`, `0755`, `12` or `-1`. A negative number is a C `int`.
pub(super) fn number(input: &mut &str) -> ModalResult<u64> {
    alt((
        preceded("0x", hex),
        octal,
        dec_uint,
        preceded("-", digit1).try_map(|digits: &str| {
            let int = format!("-{digits}").parse::<i32>();
            int.map(|int| u64::from(int as u32))
        }),
    ))
    .parse_next(input)
}

/// Reads hexadecimal digits, at most 64 bits.
pub(super) fn hex(input: &mut &str) -> ModalResult<u64> {
    hex_digit1
        .try_map(|digits| u64::from_str_radix(digits, 16))
        .parse_next(input)
}

fn octal(input: &mut &str) -> ModalResult<u64> {
    preceded("0", digit1)
        .try_map(|digits| u64::from_str_radix(digits, 8))
        .parse_next(input)
}

/// Reads a thread id.
pub(super) fn id(input: &mut &str) -> ModalResult<i32> {
    dec_int.verify(|id: &i32| *id >= 0).parse_next(input)
}

/// Reads an integer that may be negative, such as a result.
pub(super) fn signed(input: &mut &str) -> ModalResult<i64> {
    alt((preceded("0x", hex).map(|bits| bits as i64), dec_int)).parse_next(input)
}

/// Reads `A|B|0x10`, `21<<MAP_HUGE_SHIFT`, `8192*1024`.
pub(super) fn expression(input: &mut &str) -> ModalResult<u64> {
    let sum: Vec<u64> = separated(1.., product, "|").parse_next(input)?;
    Ok(sum.into_iter().fold(0, |bits, more| bits | more))
}

fn product(input: &mut &str) -> ModalResult<u64> {
    let value = factor(input)?;
    let times = opt(preceded("*", factor)).parse_next(input)?;
    let shift = opt(preceded("<<", factor)).parse_next(input)?;
    let value = value.wrapping_mul(times.unwrap_or(1));
    Ok(match shift {
        Some(places) => value.wrapping_shl(places as u32),
        None => value,
    })
}

fn factor(input: &mut &str) -> ModalResult<u64> {
    alt((number, word.verify_map(names::value))).parse_next(input)
}

/// Reads a C identifier.
pub(super) fn word<'a>(input: &mut &'a str) -> ModalResult<&'a str> {
    take_while(1.., |c: char| c.is_ascii_alphanumeric() || c == '_').parse_next(input)
}

/// Reads seconds such as `12.000345` with any number of decimal places; returns nanoseconds.
pub(super) fn seconds(input: &mut &str) -> ModalResult<Nanos> {
    let whole: u64 = terminated(dec_uint, ".").parse_next(input)?;
    Ok(whole
        .saturating_mul(1_000_000_000)
        .saturating_add(fraction(input)?))
}

/// Reads the decimal places after a point; returns billionths.
pub(super) fn fraction(input: &mut &str) -> ModalResult<u64> {
    let digits = digit1.parse_next(input)?;
    let billionths = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
    Ok(billionths.fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_as_the_tools_print_them() {
        let value = |text: &str| expression.parse(text).ok();
        assert_eq!(value("PROT_READ|PROT_WRITE"), Some(3));
        assert_eq!(
            value("MAP_PRIVATE|MAP_HUGETLB|21<<MAP_HUGE_SHIFT|0x8"),
            Some(0x5404_000a)
        );
        assert_eq!(value("8192*1024"), Some(8 << 20));
        assert_eq!(value("RLIM64_INFINITY"), Some(u64::MAX));
        assert_eq!(value("18446744073709551615"), Some(u64::MAX));
        assert_eq!(value("-1"), Some(0xffff_ffff));
        assert_eq!(
            (value("0600"), value("0"), value("NULL")),
            (Some(0o600), Some(0), Some(0))
        );
        assert_eq!(
            (value("PROT_UNHEARD_OF"), value(""), value("0x")),
            (None, None, None)
        );
        assert_eq!(value("99999999999999999999999"), None);
    }

    #[test]
    fn times_of_any_precision() {
        assert_eq!(seconds.parse("12.5"), Ok(12_500_000_000));
        assert_eq!(seconds.parse("2186.472942"), Ok(2_186_472_942_000));
        assert_eq!(seconds.parse("0.0000000019"), Ok(1));
    }
}
