//! The thread that traces, and the channel through which its events reach the caller.
//!
//! The kernel ends the tracing of all tasks when the tracing thread exits, whatever state they are
//! in. A task that sleeps in a call stays asleep, and no error path can leave a task traced.
//! `ptrace(PTRACE_DETACH)` could not do this: it requires that the task is stopped, and stopping a
//! task interrupts its call. The sink and the progress callback remain in the caller's thread.

use crate::{CallStack, Progress, RecordError, Sink};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use vmarea_trace::event::{Event, Header};

/// Maximum number of messages in the channel, each with up to [`BATCH`] events.
const MESSAGES: usize = 64;
/// Number of events that are sent together.
const BATCH: usize = 512;

enum Message {
    Header(Box<Header>),
    Events(Vec<Event>),
    Stack(Box<CallStack>),
    Tick,
    Progress(Progress),
}

/// Runs `trace` in a new thread, which has exited when this function returns.
///
/// `trace` receives a sink and a progress callback that forward to those of the caller.
pub(super) fn in_thread<T: Send + 'static>(
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(Progress),
    trace: impl FnOnce(&mut dyn Sink, &mut dyn FnMut(Progress)) -> Result<T, RecordError>
    + Send
    + 'static,
) -> Result<T, RecordError> {
    let (sender, receiver) = sync_channel(MESSAGES);
    let failure = Arc::new(Mutex::new(None));
    let mut remote = RemoteSink {
        sender: sender.clone(),
        events: Vec::new(),
        failure: Arc::clone(&failure),
    };
    let body = move || {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let result = trace(&mut remote, &mut |step| {
            // The caller receives until all senders are gone.
            let _ = sender.send(Message::Progress(step));
        });
        remote.send_events();
        (tid, result)
    };
    let builder = thread::Builder::new().name("vmarea-attach".to_owned());
    let tracer = builder.spawn(body).map_err(RecordError::Follow)?;
    receive(&receiver, sink, progress, &failure);
    let (tid, result) = tracer
        .join()
        .map_err(|_| RecordError::Follow(io::Error::other("the tracing thread has panicked")))?;
    wait_for_exit(tid);
    match failure
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
    {
        Some(error) => Err(RecordError::Sink(error)),
        None => result,
    }
}

/// Waits until the kernel has removed an exited thread, and with it its tracing.
///
/// `join` returns a moment earlier.
fn wait_for_exit(tid: i32) {
    let path = PathBuf::from(format!("/proc/self/task/{tid}"));
    while path.exists() {
        thread::sleep(Duration::from_micros(100));
    }
}

type Failure = Mutex<Option<io::Error>>;

/// Passes messages on until the tracing thread ends; stores the first error of the sink.
fn receive(
    receiver: &Receiver<Message>,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(Progress),
    failure: &Failure,
) {
    for message in receiver {
        let failed = || failure.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = failed().is_none();
        let done = match message {
            Message::Progress(step) => {
                progress(step);
                Ok(())
            }
            _ if !alive => Ok(()),
            Message::Header(header) => sink.header(&header),
            Message::Events(events) => events.iter().try_for_each(|event| sink.event(event)),
            Message::Stack(stack) => {
                sink.stack(&stack);
                Ok(())
            }
            Message::Tick => sink.tick(),
        };
        if let Err(error) = done {
            *failed() = Some(error);
        }
    }
}

/// Sink in the tracing thread.
struct RemoteSink {
    sender: SyncSender<Message>,
    events: Vec<Event>,
    failure: Arc<Failure>,
}

impl RemoteSink {
    fn send_events(&mut self) {
        if !self.events.is_empty() {
            let events = std::mem::take(&mut self.events);
            let _ = self.sender.send(Message::Events(events));
        }
    }

    /// Sends a message, after the events before it. Fails if the caller's sink has failed.
    fn send(&mut self, message: Message) -> io::Result<()> {
        self.send_events();
        let _ = self.sender.send(message);
        match &*self.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.kind().into()),
            None => Ok(()),
        }
    }
}

impl Sink for RemoteSink {
    fn header(&mut self, header: &Header) -> io::Result<()> {
        self.send(Message::Header(Box::new(header.clone())))
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.events.push(event.clone());
        if self.events.len() >= BATCH {
            self.send_events();
        }
        Ok(())
    }

    fn tick(&mut self) -> io::Result<()> {
        self.send(Message::Tick)
    }

    fn stack(&mut self, stack: &CallStack) {
        let _ = self.send(Message::Stack(Box::new(stack.clone())));
    }
}
