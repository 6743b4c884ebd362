//! The words of errors, as a person reads them.

use std::borrow::Cow;

/// Returns a message without the numbers that Rust adds to the kernel's errors: the words say it.
pub(crate) fn in_words(text: &str) -> Cow<'_, str> {
    const BEFORE: &str = " (os error ";
    let mut left = text;
    let mut words = String::new();
    while let Some(at) = left.find(BEFORE) {
        let (said, number) = left.split_at(at);
        let number = &number[BEFORE.len()..];
        let end = number.trim_start_matches(|c: char| c.is_ascii_digit());
        let Some(after) = end.strip_prefix(')').filter(|_| end.len() < number.len()) else {
            break;
        };
        words += said;
        left = after;
    }
    match words.is_empty() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(words + left),
    }
}

#[cfg(test)]
mod tests {
    use super::in_words;

    #[test]
    fn only_the_numbers_of_errors_are_left_out() {
        let text = "a: b (os error 13) (c (os error 2))";
        assert_eq!(in_words(text), "a: b (c)");
        for text in [
            "",
            "os error 2",
            "a (os error x)",
            "a (os error )",
            "a (os error 2",
        ] {
            assert_eq!(in_words(text), text);
        }
    }
}
