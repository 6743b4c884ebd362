//! Names of functions in a limited width: what surrounds the name of a function is cut, not the name.
//!
//! A demangled name of C++ or Rust can have hundreds of characters, most of them arguments of templates.
//! These are cut first, then the parameters, then the outer namespaces and types. Names in other forms
//! have none of these and stay as they are.

/// What looks like a bracket after `operator`, longest first.
const OPERATORS: [&str; 12] = [
    "<=>", "<<=", ">>=", "->*", "->", "<<", ">>", "<=", ">=", "()", "<", ">",
];
/// A namespace that looks like parameters.
const ANONYMOUS: &str = "(anonymous namespace)";

/// Returns the name in at most `width` characters.
///
/// # Errors
/// Returns the name of the function alone if that is longer.
pub(super) fn fitted(name: &str, width: usize) -> Result<String, String> {
    let fits = |text: &str| text.chars().count() <= width;
    if fits(name) {
        return Ok(name.to_owned());
    }
    let without_arguments = folded(name, '<', '>');
    if fits(&without_arguments) {
        return Ok(without_arguments);
    }
    let bare = folded(&without_arguments, '(', ')');
    if fits(&bare) {
        return Ok(bare);
    }
    let starts = bare.match_indices("::").map(|(at, _)| at);
    let ends = starts.map(|at| format!("…{}", &bare[at..]));
    let longest = ends.reduce(|longer, end| if fits(&longer) { longer } else { end });
    match longest {
        Some(end) if fits(&end) => Ok(end),
        Some(end) => Err(end),
        None => Err(bare),
    }
}

/// Replaces what is between outermost brackets; a name whose brackets do not match stays as it is.
fn folded(name: &str, open: char, close: char) -> String {
    let mut text = String::new();
    let (mut depth, mut at) = (0, 0);
    while let Some(next) = name[at..].chars().next() {
        let piece = whole(&name[..at], &name[at..]).unwrap_or(&name[at..at + next.len_utf8()]);
        let is_bracket = piece.len() == next.len_utf8();
        if is_bracket && next == close && depth > 0 {
            depth -= 1;
        }
        match depth {
            0 => text.push_str(piece),
            _ if text.ends_with(open) => text.push('…'),
            _ => {}
        }
        if is_bracket && next == open {
            depth += 1;
        }
        at += piece.len();
    }
    if depth == 0 { text } else { name.to_owned() }
}

/// Returns a sign at the beginning of `rest` that is no bracket, although it looks like one.
fn whole<'a>(before: &str, rest: &'a str) -> Option<&'a str> {
    let is_operator = before.ends_with("operator");
    let signs = OPERATORS.iter().filter(|_| is_operator);
    let sign = signs
        .chain([&ANONYMOUS, &"->"])
        .find(|sign| rest.starts_with(**sign))?;
    Some(&rest[..sign.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_function_is_left_of_every_long_name() {
        let allocate = "cache::Pool<std::map<std::string, std::vector<int> > >::grow(unsigned long, bool) const";
        for (name, width, expected) in [
            (allocate, 90, allocate),
            (
                allocate,
                60,
                "cache::Pool<…>::grow(unsigned long, bool) const",
            ),
            (allocate, 40, "cache::Pool<…>::grow(…) const"),
            (allocate, 25, "…::Pool<…>::grow(…) const"),
            (allocate, 22, "…::grow(…) const"),
            (
                "a::operator<< <int>(std::ostream&, int)",
                30,
                "a::operator<< <…>(…)",
            ),
            (
                "a_namespace::operator->() const",
                21,
                "…::operator->() const",
            ),
            (
                "f(A, B)::{lambda(int)#1}::operator()(int) const",
                40,
                "f(…)::{lambda(…)#1}::operator()(…) const",
            ),
            (
                "(anonymous namespace)::f<int, long>(int)",
                33,
                "(anonymous namespace)::f<…>(int)",
            ),
            (
                "<alloc::vec::Vec<T> as core::ops::Drop>::drop",
                20,
                "<…>::drop",
            ),
            ("call<fn(A) -> B>::run", 14, "call<…>::run"),
        ] {
            let fitted = fitted(name, width);
            assert_eq!(fitted.as_deref(), Ok(expected), "{name} in {width}");
        }
    }

    #[test]
    fn a_name_that_alone_is_too_long_is_told_apart() {
        for (name, alone) in [
            ("a_function_of_c", "a_function_of_c"),
            ("outer::inner<int>::a_function(int)", "…::a_function(…)"),
            ("a<b, c_that_is_not_closed", "a<b, c_that_is_not_closed"),
        ] {
            assert_eq!(fitted(name, 10), Err(alone.to_owned()));
        }
    }
}
