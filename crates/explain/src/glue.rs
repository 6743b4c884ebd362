//! Which function of a stack is the program's own.
//!
//! A person wants to know which code makes the mappings. The innermost functions are the C library,
//! an allocator and a language's standard library, which merely pass the request on. If an
//! interpreter or a virtual machine runs the program, the program's own function is further out.
//! The tables list names of functions and libraries; a wrong choice shows in the stack.

use vmarea_symbols::{Frame, NO_CODE, RUN_TIME_CODE};

/// Beginnings of the file names of libraries that pass requests on.
const LIBRARIES: &[&str] = &[
    "ld-linux",
    "ld-musl",
    "libasan.",
    "libc++",
    "libc.",
    "libc-",
    "libgcc_s.",
    "libjemalloc",
    "libm.",
    "libmimalloc",
    "libpthread",
    "librt.",
    "libsnmalloc",
    "libstdc++",
    "libtcmalloc",
    "libtsan.",
    "libvmarea",
    "[vdso]",
];

/// Beginnings of the file names of interpreters and virtual machines.
const MACHINES: &[&str] = &[
    "beam.smp",
    "dotnet",
    "libclrjit",
    "libcoreclr",
    "libjava.",
    "libjvm",
    "libmono",
    "libnode",
    "libpython",
    "libruby",
    "libuv.",
    "libv8",
    "mmap.cpython-",
    "node",
    "perl",
    "php",
    "python",
    "ruby",
];

/// Functions that pass requests on, in whichever file they are.
const FUNCTIONS: &[&str] = &[
    "_start",
    "aligned_alloc",
    "allocate_stack",
    "brk",
    "calloc",
    "free",
    "madvise",
    "malloc",
    "memalign",
    "mmap",
    "mmap64",
    "mprotect",
    "mremap",
    "munmap",
    "posix_madvise",
    "posix_memalign",
    "pthread_create",
    "realloc",
    "reallocarray",
    "sbrk",
    "syscall",
    "valloc",
];

/// Beginnings of the names of such functions, without the brackets and signs before them.
const PREFIXES: &[&str] = &[
    // C and C++.
    "__GI_",
    "__clone",
    "__libc_",
    "__mmap",
    "__mprotect",
    "__munmap",
    "_int_",
    "clone3",
    "operator delete",
    "operator new",
    "std::",
    "sysmalloc",
    "__gnu_cxx::",
    "void std::",
    // Allocators.
    "_mi_",
    "_rjem_",
    "je_",
    "mi_",
    "rallocx",
    "tcmalloc::",
    "tc_",
    // Rust.
    "__rdl_",
    "__rg_",
    "__rust",
    "alloc::",
    "core::",
    "hashbrown::",
    "libc::",
    "memmap2::",
    "mmap_rs::",
    "nix::",
    "rustix::",
    // Go.
    "runtime.",
    "runtime/",
    "syscall.",
];

/// Names that V8 gives to code that does not belong to the program.
const BUILTIN_CODE: &[&str] = &[
    "BytecodeHandler:",
    "Builtin:",
    "Builtins_",
    "Handler:",
    "RegExp:",
    "Stub:",
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A function of the program.
    Own,
    /// A function of an interpreter or virtual machine.
    Machine,
    /// A function that passes a request on.
    Glue,
}

/// Returns the index of the program's own function in a stack, innermost first.
///
/// Without such a function, it is the innermost one of an interpreter, or else the innermost one.
pub(crate) fn own_function(stack: &[&Frame]) -> usize {
    let innermost = |wanted| stack.iter().position(|frame| kind(frame) == wanted);
    innermost(Kind::Own)
        .or_else(|| innermost(Kind::Machine))
        .unwrap_or(0)
}

/// Returns the library that made a request for the program, such as an allocator: the innermost one
/// but the C library and the loader.
pub(crate) fn library<'a>(stack: &[&'a Frame], own: usize) -> Option<&'a str> {
    const LOADER: &[&str] = &[
        "ld-linux",
        "ld-musl",
        "libc.",
        "libc-",
        "libpthread",
        "[vdso]",
    ];
    let modules = stack.iter().take(own).map(|frame| frame.module.as_deref());
    let mut libraries = modules.flatten().filter(|module| {
        let begins = |names: &[&str]| names.iter().any(|name| module.starts_with(name));
        begins(LIBRARIES) && !begins(LOADER)
    });
    libraries.next()
}

/// Returns true for the functions that call `main` or start a thread.
pub(crate) fn is_glue(frame: &Frame) -> bool {
    kind(frame) == Kind::Glue
}

/// Returns true for the function of the C library that maps the stacks of threads.
pub(crate) fn is_pthread_create(frame: &Frame) -> bool {
    let function = frame.function.trim_start_matches('_');
    let function = function.split('@').next().unwrap_or(function);
    matches!(function, "pthread_create" | "allocate_stack")
}

fn kind(frame: &Frame) -> Kind {
    let function = frame.function.as_str();
    let begins = |names: &[&str], text: &str| names.iter().any(|name| text.starts_with(name));
    let module = frame.module.as_deref().unwrap_or_default();
    let plain = function.trim_start_matches(['<', '&', '*', '_', ' ']);
    if begins(LIBRARIES, module)
        || function == NO_CODE
        || FUNCTIONS.contains(&function)
        || FUNCTIONS.contains(&plain)
        || begins(PREFIXES, function)
        || begins(PREFIXES, plain)
    {
        return Kind::Glue;
    }
    if begins(MACHINES, module) || begins(BUILTIN_CODE, function) || function == RUN_TIME_CODE {
        return Kind::Machine;
    }
    Kind::Own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &str) -> Frame {
        let (function, module) = text.split_once(" in ").unwrap_or((text, "server"));
        Frame {
            function: function.to_owned(),
            module: Some(module.to_owned()),
            ..Frame::default()
        }
    }

    #[test]
    fn the_program_s_own_function_is_found() {
        let cases: [(&[&str], usize); 7] = [
            (
                &[
                    "mmap in libc.so.6",
                    "new_mmap_object in mmap.cpython-312-x86_64-linux-gnu.so",
                    "_PyEval_EvalFrameDefault in libpython3.12.so.1.0",
                    "grow in [run-time code]",
                ],
                3,
            ),
            (
                &["mmap64 in libc.so.6", "Arena::grow(unsigned long)", "main"],
                1,
            ),
            (
                &[
                    "__mmap in libc.so.6",
                    "memmap2::os::MmapInner::new",
                    "<alloc::vec::Vec<T> as \
                  core::ops::Drop>::drop",
                    "pool::grow",
                ],
                3,
            ),
            (
                &[
                    "mmap in libc.so.6",
                    "v8::base::OS::Allocate in node",
                    "Builtins_JSEntry in node",
                    "allocate in [run-time code]",
                    "main in node",
                ],
                3,
            ),
            (
                &[
                    "mmap in libc.so.6",
                    "list_resize in python3.12",
                    "main in python3.12",
                ],
                1,
            ),
            (
                &["mmap in libc.so.6", "[run-time code] in [run-time code]"],
                1,
            ),
            (&["mmap in libc.so.6"], 0),
        ];
        for (stack, own) in cases {
            let frames: Vec<_> = stack.iter().map(|text| frame(text)).collect();
            let frames: Vec<_> = frames.iter().collect();
            assert_eq!(own_function(&frames), own, "{stack:?}");
        }
    }
}
