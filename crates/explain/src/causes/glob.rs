//! Names with `*` for any text.

/// Checks whether a name has the form of `glob`.
pub fn fits(glob: &str, name: &str) -> bool {
    if name.is_empty() {
        return glob.bytes().all(|byte| byte == b'*');
    }
    let Some((first, rest)) = glob.split_once('*') else {
        return glob == name;
    };
    let Some(mut name) = name.strip_prefix(first) else {
        return false;
    };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return name.ends_with(piece);
        }
        match name.find(piece) {
            Some(at) => name = &name[at + piece.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_stands_for_any_text() {
        for (glob, name) in [
            ("", ""),
            ("*", ""),
            ("*.cfs", "/a/_1.cfs"),
            ("/memfd:*", "/memfd:x (deleted)"),
            ("*/_*_Lucene*.dvd*", "/i/_9cu3_38_Lucene90_0.dvd (deleted)"),
        ] {
            assert!(fits(glob, name), "{glob} {name}");
        }
        for (glob, name) in [("", "x"), ("*.cfs", "/a/_1.cfe"), ("/a*b*c", "/acb")] {
            assert!(!fits(glob, name), "{glob} {name}");
        }
    }
}
