//! Function, file and line in the names that runtimes give to their code.
//!
//! V8 writes `JS:*name path:line:column`, with a mark for the compiler that made the code, and
//! Python writes `py::name:path`. Other names are functions.

use crate::demangle::demangle;

/// The parts of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Named {
    pub(super) function: String,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
}

/// Kinds of V8's code that was made from a program's functions.
const V8: [&str; 5] = ["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"];
/// V8's marks for its compilers, from the interpreter to the optimizing one.
const MARKS: &[char] = &['~', '^', '+', '*', '\''];

pub(super) fn parse(name: &str) -> Named {
    v8(name).or_else(|| python(name)).unwrap_or_else(|| Named {
        function: demangle(name),
        file: None,
        line: None,
    })
}

fn v8(name: &str) -> Option<Named> {
    let rest = V8.iter().find_map(|kind| name.strip_prefix(kind))?;
    let rest = rest.trim_start_matches(MARKS);
    let (function, place) = rest.split_once(' ')?;
    let (place, _column) = place.rsplit_once(':')?;
    let (file, line) = place.rsplit_once(':')?;
    let function = match function {
        "" => "(anonymous)",
        function => function,
    };
    Some(Named {
        function: function.to_owned(),
        file: Some(file.strip_prefix("file://").unwrap_or(file).to_owned()),
        line: Some(line.parse().ok()?),
    })
}

fn python(name: &str) -> Option<Named> {
    let (function, file) = name.strip_prefix("py::")?.split_once(':')?;
    Some(Named {
        function: function.to_owned(),
        file: Some(file.to_owned()),
        line: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_v8_and_python_have_files() {
        for (name, function, file, line) in [
            (
                "JS:*allocate /srv/a.js:3:17",
                "allocate",
                Some("/srv/a.js"),
                Some(3),
            ),
            (
                "JS:~ file:///srv/b b.mjs:1:1",
                "(anonymous)",
                Some("/srv/b b.mjs"),
                Some(1),
            ),
            ("py::grow:/srv/pool.py", "grow", Some("/srv/pool.py"), None),
            ("Builtin:JSEntry", "Builtin:JSEntry", None, None),
            ("_ZN5Arena4growEm", "Arena::grow(unsigned long)", None, None),
            ("JS:", "JS:", None, None),
        ] {
            let expected = Named {
                function: function.to_owned(),
                file: file.map(str::to_owned),
                line,
            };
            assert_eq!(parse(name), expected, "{name}");
        }
    }
}
