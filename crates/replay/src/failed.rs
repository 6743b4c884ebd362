//! The memory calls that failed in a recording, as reports list them.

use serde::Serialize;
use vmarea_trace::event::Tid;

/// Failed calls of the same name, with the same errno and the same kind of reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailedCalls {
    /// Name of the call.
    pub call: String,
    /// Name of the error; `null` for `brk`, which returns the old break instead.
    pub errno: Option<String>,
    /// Number of calls.
    pub count: u64,
    /// The first of these calls.
    pub first: FailedCall,
    /// The last of these calls.
    pub last: FailedCall,
    /// Why the first call failed; `null` if that is not known.
    pub reason: Option<String>,
    /// What would have made the first call succeed.
    pub remedy: Option<&'static str>,
}

/// One failed call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailedCall {
    /// Nanoseconds from the first event of the trace to the call.
    pub ns: u64,
    /// Number of the thread that made the call.
    pub tid: i32,
    /// The trace's number for the address space.
    pub mm: u32,
    /// The call with its arguments and its result.
    pub text: String,
    /// The program's own function that made the call, with its source line, if the stack was recorded.
    pub function: Option<String>,
    /// Time of the call, by which its stack is found.
    #[serde(skip)]
    pub(crate) t: u64,
}

impl FailedCall {
    /// Returns a call with this text, at this time after the beginning.
    pub fn new(ns: u64, text: &str) -> FailedCall {
        FailedCall {
            ns,
            tid: 0,
            mm: 0,
            text: text.to_owned(),
            function: None,
            t: 0,
        }
    }

    /// Returns the thread and the time that identify the call in the trace.
    pub fn key(&self) -> (Tid, u64) {
        (Tid(self.tid), self.t)
    }
}
