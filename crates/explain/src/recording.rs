//! What every reader of a recording uses: its errors, and the stacks of its calls.

use std::collections::HashMap;
use std::io;
use vmarea_replay::Error;
use vmarea_trace::Error as TraceError;
use vmarea_trace::event::Tid;

/// Reason why a recording cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace cannot be replayed.
    #[error(transparent)]
    Replay(#[from] Error),
    /// The trace cannot be opened.
    #[error("cannot read the recording: {0}")]
    Open(#[from] io::Error),
    /// The recording contains no mapping.
    #[error("the recording contains no mapping of the program")]
    Empty,
}

/// Numbers of the stacks recorded at each thread's calls, in the order of the calls in the trace.
#[derive(Clone, Debug, Default)]
pub struct CallStacks {
    /// Stack numbers of the calls, by thread.
    pub by_thread: HashMap<Tid, std::collections::VecDeque<u32>>,
}

impl CallStacks {
    /// Removes and returns the number of the stack at the next call of a thread.
    pub fn next(&mut self, tid: Tid) -> Option<u32> {
        self.by_thread.get_mut(&tid)?.pop_front()
    }
}
