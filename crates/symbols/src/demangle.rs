//! Demangled names of Rust and C++ functions, of bounded length.
//!
//! A short mangled name can stand for a name of gigabytes, because its parts can refer to each
//! other.

use cpp_demangle::{BorrowedSymbol, DemangleOptions};
use std::fmt::{self, Write};

/// Maximum length of a mangled name that is demangled, in bytes.
const MANGLED_BYTES: usize = 16 << 10;
/// Maximum length of a name, in bytes.
pub(crate) const NAME_BYTES: usize = 2 << 10;

/// Text that refuses to grow beyond [`NAME_BYTES`].
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > NAME_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Returns the name that a programmer gave the function; other names are returned unchanged.
pub(crate) fn demangle(mangled: &str) -> String {
    let short = bounded(mangled);
    if mangled.len() > MANGLED_BYTES {
        return short;
    }
    let mut name = Bounded::default();
    if let Ok(rust) = rustc_demangle::try_demangle(mangled) {
        // The alternate form leaves out the hash.
        return match write!(name, "{rust:#}") {
            Ok(()) => name.0,
            Err(_) => short,
        };
    }
    let Ok(symbol) = BorrowedSymbol::new(mangled.as_bytes()) else {
        return short;
    };
    let options = DemangleOptions::new().no_return_type();
    match symbol.structured_demangle(&mut name, &options) {
        Ok(()) => name.0,
        Err(_) => short,
    }
}

/// Returns a name, cut at the maximum length.
pub(crate) fn bounded(name: &str) -> String {
    let end = name.floor_char_boundary(NAME_BYTES);
    name[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_and_cpp_names_are_demangled_and_c_names_are_not() {
        for (mangled, plain) in [
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            (
                "_ZN4core3ptr13drop_in_place17h0123456789abcdefE",
                "core::ptr::drop_in_place",
            ),
            ("_ZN5Arena4growEm", "Arena::grow(unsigned long)"),
            ("main", "main"),
            ("_Zwrong", "_Zwrong"),
        ] {
            assert_eq!(demangle(mangled), plain);
        }
    }

    /// Returns a function whose last argument contains `int` two to the power of `n` times.
    fn doubled(n: u32) -> String {
        let pair = |k: u32| {
            let digit = char::from_digit(k, 36).unwrap().to_ascii_uppercase();
            format!("S_IS{digit}_S{digit}_E")
        };
        let pairs: String = (0..n - 1).map(pair).collect();
        format!("_Z1f1AIiiE{pairs}")
    }

    #[test]
    fn a_name_that_would_grow_without_bound_stays_mangled() {
        assert_eq!(
            demangle(&doubled(2)),
            "f(A<int, int>, A<A<int, int>, A<int, int> >)"
        );
        assert_eq!(demangle(&doubled(30)), doubled(30));
    }
}
