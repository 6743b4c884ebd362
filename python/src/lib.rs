//! The native half of the Python package `vmarea`.
//!
//! The functions do the work of the commands of the same names, with the interpreter's lock
//! released, and return JSON of the documented schemas and [`table::Table`]s. The Python half, in
//! `python/vmarea`, makes dataclasses of the JSON. A failure has the words that the command line
//! prints, and a class that corresponds to the command line's exit status ([`failure`]).
#![forbid(unsafe_code)]

mod compare;
mod explain;
mod export;
mod failure;
mod interrupt;
mod record;
mod replay;
mod table;
mod trace;

use pyo3::prelude::*;

/// The native half of the package.
#[pymodule]
mod _vmarea {
    #[pymodule_export]
    use crate::compare::{compare, is_trace};
    #[pymodule_export]
    use crate::explain::{explain_file, explain_process, explain_text};
    #[pymodule_export]
    use crate::export::export;
    #[pymodule_export]
    use crate::record::{attach, record};
    #[pymodule_export]
    use crate::replay::replay;
    #[pymodule_export]
    use crate::table::Table;
}
